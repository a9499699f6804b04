"""The engine room: which threads there are, and what each is given."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from ldlm_monitor.config import Settings
from ldlm_monitor.config.fields import is_loopback
from ldlm_monitor.daemon.listener import listen, names_for, url_of, write_file_sd
from ldlm_monitor.daemon.local_source import LocalSource
from ldlm_monitor.daemon.pump import Pump
from ldlm_monitor.daemon.signals import Signals
from ldlm_monitor.daemon.stall_probe import Probing
from ldlm_monitor.model.errors import UsageError
from ldlm_monitor.model.queries import Source
from ldlm_monitor.model.view import CurveView, Snapshot
from ldlm_monitor.notify import (
    AlertmanagerClient,
    AlertmanagerSender,
    Courier,
    HeartbeatSender,
    Outbox,
    Pulse,
    Receiver,
    Silences,
    how_to_configure,
    redact,
)
from ldlm_monitor.notify.receivers import draw_from, group_policies, single_policies
from ldlm_monitor.notify.receivers import receivers as named_receivers
from ldlm_monitor.playback.recording import Recorder
from ldlm_monitor.probe.host import HostProbe
from ldlm_monitor.serve import Gate, Server, Site
from ldlm_monitor.source import Journal, Waker, WatchdogWaker
from ldlm_monitor.state.state_dir import StateDir, default_state_dir
from ldlm_monitor.state.state_store import StateStore
from ldlm_monitor.text.lines import status_lines

COURIER_SECONDS = 1.0
"""How long the end waits for a receiver's answer."""

log = logging.getLogger(__name__)


def run(
    settings: Settings,
    load: Callable[[], Settings],
    signals: Signals,
    opened: Callable[[Source, str], None] = lambda source, url: None,
) -> Snapshot:
    """Follow the files until `signals` ends it; returns the last snapshot.

    `load` reads the settings anew on SIGHUP. `opened` gets the source of a screen and the URL of
    this daemon once it serves. Raises `UsageError` where the settings cannot be used, or where a
    daemon on the same inputs runs already.
    """
    with ExitStack() as stack:
        receivers = list(named_receivers(settings))
        gate = Gate(settings.web_config)
        wanted = settings.state_dir or default_state_dir(settings.files, Path.cwd())
        state = StateDir(wanted)
        stack.callback(state.close)
        policies = group_policies(settings, receivers), single_policies(settings)
        outbox = Outbox(state.path / "outbox.sqlite", *policies)
        stack.callback(outbox.close)
        made: Future[Pump] = Future()
        draw_from(partial(_curves, made), receivers)
        # Before what was known is read again, which may take long: what waits goes out at once.
        pace = settings.post_interval_seconds
        couriers = [Courier(receiver, outbox, pace=pace) for receiver in receivers]
        _start(couriers, stack)
        stack.callback(made.cancel)
        store = StateStore(state.path / "ledger.sqlite")
        stack.callback(store.close)
        silences = Silences(state.path / "silences.sqlite")
        stack.callback(silences.close)
        journal = Journal()
        waker = WatchdogWaker(journal)
        stack.callback(waker.close)
        pump = Pump(
            settings,
            outbox,
            store,
            [receiver.name for receiver in receivers],
            waker,
            silences=silences,
            couriers=couriers,
            probing=_probing(settings, waker, stack),
            folder=state,
            recorder=_recorder(settings, stack),
            stopping=lambda: signals.stop,
            prints=not signals.has_screen,
        )
        made.set_result(pump)
        stack.callback(pump.close)
        signals.wake = partial(waker.ring, Path())
        source = LocalSource(
            lambda: pump.snapshot,
            silences,
            _shown_inputs(settings),
            reading=lambda: pump.reading,
        )

        def bind(host: str, port: int) -> Server:
            site = Site(
                snapshot=lambda: pump.snapshot,
                notifications=outbox.counts,
                behind=pump.follower.behind,
                ready=lambda: pump.caught_up,
                redact=redact,
                reload=signals.ask_reload,
                silencing=silences,
                takes_commands=is_loopback(host),
                source=source,
                free=lambda: state.free,
                gate=gate,
                names=names_for(settings, host),
            )
            return Server(host, port, site)

        server = listen(settings, gate, bind)
        stack.callback(server.stop)
        url = url_of(settings.listen_address[0], server.port, encrypts=gate.encrypts)
        _start(_senders(settings, pump, outbox, url), stack)
        stack.callback(write_file_sd(settings, server.port, gate))
        _greet(settings, pump, state, url, receivers)
        waker.watch(pump.inputs.folders())
        opened(source, url)
        _follow(settings, pump, waker, journal, signals, load=load)
    return pump.snapshot


def _curves(made: Future[Pump]) -> Mapping[str, Mapping[str, CurveView]]:
    """What pictures are drawn from. Blocks until the pump exists, or nothing will come of it."""
    try:
        return made.result().snapshot.curves
    except CancelledError:
        return {}


def _shown_inputs(settings: Settings) -> str:
    first, *more = settings.files
    return f"{first} and {len(more)} more" if more else first


def _follow(
    settings: Settings,
    pump: Pump,
    waker: Waker,
    journal: Journal,
    signals: Signals,
    *,
    load: Callable[[], Settings],
) -> None:
    status_at = time.time() + settings.interval
    dirty: set[Path] = set()
    while not (signals.stop or pump.ended):
        now = time.time()
        if signals.reload:
            signals.reloaded(_reload(pump, load))
        pump.turn(dirty, now)
        if not signals.has_screen and now >= status_at:
            status_at = now + settings.interval
            for line in status_lines(pump.snapshot, now):
                print(line, flush=True)
        for notice in journal.drain():
            log.warning("%s", notice)
        dirty = waker.wait(pump.pause(time.time()))
    if pump.caught_up:
        pump.turn((), time.time())


def _reload(pump: Pump, load: Callable[[], Settings]) -> str:
    try:
        pump.reload(load())
    except UsageError as problem:
        log.error("%s; going on with what was loaded before", problem)
        return str(problem)
    log.info("settings and rules are loaded anew")
    return ""


def _start(
    threads: Iterable[Courier | AlertmanagerSender | HeartbeatSender], stack: ExitStack
) -> None:
    for each in threads:
        each.start()
        stack.callback(each.stop, COURIER_SECONDS)


def _senders(
    settings: Settings, pump: Pump, outbox: Outbox, url: str
) -> Iterator[AlertmanagerSender | HeartbeatSender]:
    """One for each Alertmanager, which gets the firing alerts, and the dead man's switch."""
    authorization = settings.alertmanager.authorization()
    for server in settings.alertmanager.urls:
        client = AlertmanagerClient(server, authorization=authorization)
        log.info("%s gets what fires", client.name)
        yield AlertmanagerSender(
            client,
            lambda: pump.snapshot,
            outbox,
            pulse=Pulse(lambda: pump.turns),
            generator=url,
            external_labels=settings.external_labels,
        )
    if switch := settings.heartbeat.target():
        interval = settings.heartbeat.interval_seconds
        log.info("a dead man's switch is called every %g s", interval)
        yield HeartbeatSender(switch, interval, Pulse(lambda: pump.turns), outbox)


def _probing(settings: Settings, waker: Waker, stack: ExitStack) -> Probing | None:
    """Asks this host of runs that stall, unless the user does not want it asked."""
    if not settings.probe.enabled:
        return None
    probing = Probing(HostProbe(), lambda: waker.ring(Path()))
    stack.callback(probing.close)
    return probing


def _recorder(settings: Settings, stack: ExitStack) -> Recorder | None:
    if settings.record is None:
        return None
    recorder = Recorder(settings.record, _shown_inputs(settings), time.time())
    stack.callback(recorder.close)
    return recorder


def _greet(
    settings: Settings,
    pump: Pump,
    state: StateDir,
    url: str,
    receivers: list[Receiver],
) -> None:
    state.announce(url)
    if state.notice:
        log.error("%s", state.notice)
    log.info("metrics on %s/metrics, state in %s", url, state.path)
    for argument in pump.inputs.patterns.missing():
        log.info("%s: nothing there yet, waiting for it", argument)
    if not receivers and not settings.alertmanager.urls:
        log.info("%s", how_to_configure())
    sys.stdout.flush()
