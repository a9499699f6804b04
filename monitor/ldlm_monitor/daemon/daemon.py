"""The engine room: which threads there are, and what each is given."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeAlias

from ldlm_monitor.config import Settings
from ldlm_monitor.config.loopback import is_loopback
from ldlm_monitor.daemon.listener import listen, names_for, url_of, write_file_sd
from ldlm_monitor.daemon.local_source import LocalSource
from ldlm_monitor.daemon.pump import Pump
from ldlm_monitor.daemon.senders import CurvesWhenReady, couriers, senders
from ldlm_monitor.daemon.signals import Handler, Signals
from ldlm_monitor.daemon.stall_probe import Probing
from ldlm_monitor.model.errors import UsageError
from ldlm_monitor.model.queries import Source
from ldlm_monitor.model.view import Snapshot
from ldlm_monitor.notify import (
    AlertmanagerSender,
    Courier,
    HeartbeatSender,
    Outbox,
    Receiver,
    Silences,
    how_to_configure,
    redact,
)
from ldlm_monitor.notify.receivers import draw_from, group_policies, single_policies
from ldlm_monitor.notify.receivers import receivers as named_receivers
from ldlm_monitor.playback.recording import Recorder
from ldlm_monitor.probe.host import HostProbe, this_host
from ldlm_monitor.serve import Gate, Server, Site
from ldlm_monitor.source import Journal, Waker
from ldlm_monitor.state.state_dir import Room, StateDir, default_state_dir
from ldlm_monitor.state.state_store import StateStore
from ldlm_monitor.text.lines import status_lines

SWITCH_SECONDS = 0.001
"""How long the pump may keep a key waiting each time (Python's own: 5 ms)."""
COURIER_SECONDS = 1.0
"""How long the end waits for a receiver's answer."""

Show: TypeAlias = Callable[[Source, str, Callable[[], bool]], int]
"""Opens a screen on a source, whose daemon serves at a URL; it closes when the third argument
says so. Its exit code."""

log = logging.getLogger(__name__)


def run(
    settings: Settings,
    load: Callable[[], Settings] | None = None,
    on_interrupt: Callable[[Snapshot], None] | None = None,
    show: Show | None = None,
    *,
    has_terminal: bool = True,
    heed: Callable[[Handler], None] | None = None,
) -> int:
    """Follow the files until SIGTERM or SIGINT; returns the exit code.

    `load` reads the settings anew on SIGHUP; `on_interrupt` gets the last snapshot
    after SIGINT, and where a person closed the screen. `show` has this thread, and the
    pump one of its own; it has the terminal, too, or (`has_terminal`) leaves that to lines.
    `heed` gets the signal handler where this is not the main thread.
    Raises `UsageError` where the settings cannot be used, or where a
    daemon on the same inputs runs already.
    """
    with ExitStack() as stack:
        receivers = list(named_receivers(settings))
        gate = Gate(settings.web_config)
        wanted = settings.state_dir or default_state_dir(settings.files, Path.cwd())
        state = StateDir(wanted)
        stack.callback(state.close)
        outbox = _outbox(settings, state, receivers)
        stack.callback(outbox.close)
        drawn = CurvesWhenReady()
        draw_from(drawn, receivers)
        # Before what was known is read again, which may take long: what waits goes out at once.
        posting = list(couriers(settings, outbox, receivers))
        _start(posting, stack)
        stack.callback(drawn.close)
        store = StateStore(state.path / "ledger.sqlite")
        stack.callback(store.close)
        silences = Silences(state.path / "silences.sqlite")
        stack.callback(silences.close)
        journal = Journal()
        waker = Waker(journal)
        stack.callback(waker.close)
        names = [receiver.name for receiver in receivers]
        probing = _probing(settings, waker)
        if probing is not None:
            stack.callback(probing.close)
        room = Room(state.path)
        pump = Pump(
            settings,
            outbox,
            store,
            names,
            waker,
            silences=silences,
            couriers=posting,
            probing=probing,
            room=room,
            recorder=_recorder(settings, stack),
        )
        drawn.of(pump)
        stack.callback(pump.close)
        signals = Signals(pump, waker)
        _heed(signals, heed, stack)
        source = LocalSource(
            lambda: pump.snapshot,
            silences,
            _shown_inputs(settings),
            reading=lambda: pump.reading,
        )
        server = _serve(
            settings, pump, outbox, silences, signals, source=source, room=room, gate=gate
        )
        stack.callback(server.stop)
        url = url_of(settings.listen_address[0], server.port, gate)
        _start(senders(settings, pump, outbox, url), stack)
        stack.callback(write_file_sd(settings, server.port, gate))
        _greet(settings, pump, state, url, receivers)
        waker.watch(pump.inputs.folders())
        load = load or (lambda: settings)
        follow = partial(_follow, settings, pump, waker, journal, signals, load=load)
        if show is None:
            follow(status=True)
        else:
            pump.dispatcher.mute = signals.has_screen = has_terminal
            behind = partial(follow, status=not has_terminal)
            _follow_behind(partial(show, source, url), behind, pump, waker, signals)
    if (signals.exit_code or (show is not None and signals.closed)) and on_interrupt is not None:
        on_interrupt(pump.snapshot)
    return signals.exit_code


def _outbox(settings: Settings, state: StateDir, receivers: list[Receiver]) -> Outbox:
    return Outbox(
        state.path / "outbox.sqlite", group_policies(settings, receivers), single_policies(settings)
    )


def _follow_behind(
    show: Callable[[Callable[[], bool]], int],
    follow_files: Callable[[], None],
    pump: Pump,
    waker: Waker,
    signals: Signals,
) -> None:
    """The pump in a thread, the screen in this one; each ends with the other."""
    failures: list[BaseException] = []

    def follow() -> None:
        try:
            follow_files()
        except BaseException as failure:  # noqa: BLE001 - raised again in the main thread
            failures.append(failure)

    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    thread = threading.Thread(target=follow, name="pump")
    thread.start()
    try:
        code = show(lambda: signals.stop or not thread.is_alive())
        signals.closed = not signals.stop and thread.is_alive()
        signals.exit_code = signals.exit_code or code
    finally:
        signals.stop = pump.stopping = True
        waker.ring(Path())
        thread.join()
        sys.setswitchinterval(before)
    if failures:
        raise failures[0]


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
    status: bool,
) -> None:
    status_at = time.time() + settings.interval
    dirty: set[Path] = set()
    while not (signals.stop or pump.ended):
        now = time.time()
        if signals.reload:
            signals.reloaded(_reload(pump, load))
        pump.turn(dirty, now)
        if status and now >= status_at:
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


def _probing(settings: Settings, waker: Waker) -> Probing | None:
    """Asks this host of runs that stall, unless the user does not want it asked."""
    if not settings.probe.enabled:
        return None
    return Probing(HostProbe(), this_host(), lambda: waker.ring(Path()))


def _heed(signals: Signals, heed: Callable[[Handler], None] | None, stack: ExitStack) -> None:
    if heed is not None:
        heed(signals)
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        stack.callback(signal.signal, number, signal.signal(number, signals))


def _recorder(settings: Settings, stack: ExitStack) -> Recorder | None:
    if settings.record is None:
        return None
    recorder = Recorder(settings.record, _shown_inputs(settings), time.time())
    stack.callback(recorder.close)
    return recorder


def _serve(
    settings: Settings,
    pump: Pump,
    outbox: Outbox,
    silences: Silences,
    signals: Signals,
    *,
    source: Source,
    room: Room,
    gate: Gate,
) -> Server:
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
            free=lambda: room.free,
            gate=gate,
            names=names_for(settings, host),
        )
        return Server(host, port, site)

    return listen(settings, gate, bind)


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
