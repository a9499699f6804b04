"""The engine room: threads and signals. Only this file knows them."""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TypeAlias

from ldlm_monitor.config import Settings
from ldlm_monitor.errors import UsageError
from ldlm_monitor.ledger import Ledger
from ldlm_monitor.lines import status_lines
from ldlm_monitor.local_source import LocalSource
from ldlm_monitor.notify import (
    Alertmanager,
    AlertmanagerClient,
    Courier,
    Heartbeat,
    Outbox,
    Pulse,
    Receiver,
    Silences,
    how_to_configure,
    redact,
)
from ldlm_monitor.notify.receivers import draw_from, grouped, routing
from ldlm_monitor.notify.receivers import receivers as named_receivers
from ldlm_monitor.probe.host import HostProbe, this_host
from ldlm_monitor.probing import Probing
from ldlm_monitor.pump import Pump
from ldlm_monitor.queries import Source
from ldlm_monitor.recording import Recorder
from ldlm_monitor.serve import Gate, Server
from ldlm_monitor.serve.file_sd import FileSd, target
from ldlm_monitor.source import Journal, Waker, WatchdogWaker
from ldlm_monitor.state_dir import Room, StateDir, default_state_dir
from ldlm_monitor.view import Snapshot

PORTS_TRIED = 20
RELOAD_SECONDS = 10.0
SWITCH_SECONDS = 0.001
"""How long the pump may keep a key waiting each time (Python's own: 5 ms)."""
COURIER_SECONDS = 1.0
"""How long the end waits for a receiver's answer."""

Show: TypeAlias = Callable[[Source, str, Callable[[], bool]], int]
"""Opens a screen on a source, whose daemon serves at a URL; it closes when the third argument
says so. Its exit code."""

Handler: TypeAlias = Callable[[int, FrameType | None], None]

log = logging.getLogger(__name__)


class _Signals:
    """What signals ask of the pump's thread: to end, or to reload.

    A reload may also be asked for over HTTP, by a thread that waits for its outcome.
    """

    def __init__(self, pump: Pump, waker: Waker) -> None:
        self._pump = pump
        self._waker = waker
        self._outcomes: list[queue.SimpleQueue[str]] = []
        self.stop = False
        self.closed = False
        self.has_screen = False
        self.reload = False
        self.exit_code = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP and not self._terminal_is_gone():
            self.reload = True
        else:
            self.stop = self._pump.stopping = True
            self.exit_code = 130 if number == signal.SIGINT else 0
        self._waker.ring(Path())

    def _terminal_is_gone(self) -> bool:
        """A screen whose terminal was closed ends; a daemon never had one."""
        if not self.has_screen or os.isatty(2):
            return False
        # What the screen still draws would fail, and its writer hold up the end.
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
        return True

    def ask_reload(self) -> str:
        """Reload, from another thread; what went wrong, or an empty text."""
        outcome: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._outcomes.append(outcome)
        self.reload = True
        self._waker.ring(Path())
        try:
            return outcome.get(timeout=RELOAD_SECONDS)
        except queue.Empty:
            return "the monitor is busy; it will reload as soon as it can"

    def reloaded(self, problem: str) -> None:
        """Tell all who asked how it went."""
        self.reload = False
        while self._outcomes:
            self._outcomes.pop().put(problem)


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
    `heed` is told what is to be done on a signal where this is not the main thread.
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
        ledger = Ledger(state.path / "ledger.sqlite")
        stack.callback(ledger.close)
        silences = Silences(state.path / "silences.sqlite")
        stack.callback(silences.close)
        journal = Journal()
        waker = WatchdogWaker(journal)
        stack.callback(waker.close)
        names = [receiver.name for receiver in receivers]
        probing = _probing(settings, waker)
        if probing is not None:
            stack.callback(probing.close)
        room = Room(state.path)
        pump = Pump(
            settings,
            outbox,
            ledger,
            names,
            waker,
            silences=silences,
            probing=probing,
            room=room,
            recorder=_recorder(settings, stack),
        )
        draw_from(lambda: pump.snapshot.curves, receivers)
        stack.callback(pump.close)
        signals = _Signals(pump, waker)
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
        url = _url(settings.listen_address[0], server.port, gate)
        for teller in _tellers(settings, pump, outbox, receivers, url):
            teller.start()
            stack.callback(teller.stop, COURIER_SECONDS)
        stack.callback(_let_prometheus_find(settings, server, gate))
        _greet(settings, pump, state, url, receivers)
        waker.watch(pump.inputs.folders())
        load = load or (lambda: settings)
        follow = partial(_follow, settings, pump, waker, journal, signals, load=load)
        if show is None:
            follow(status=True)
        else:
            pump.telling.mute = signals.has_screen = has_terminal
            behind = partial(follow, status=not has_terminal)
            _follow_behind(partial(show, source, url), behind, pump, waker, signals)
    if (signals.exit_code or (show is not None and signals.closed)) and on_interrupt is not None:
        on_interrupt(pump.snapshot)
    return signals.exit_code


def _outbox(settings: Settings, state: StateDir, receivers: list[Receiver]) -> Outbox:
    routes = routing(settings, receivers)
    return Outbox(state.path / "outbox.sqlite", routes, grouped(receivers))


def _follow_behind(
    show: Callable[[Callable[[], bool]], int],
    follow_files: Callable[[], None],
    pump: Pump,
    waker: Waker,
    signals: _Signals,
) -> None:
    """The pump in a thread, the screen in this one; each ends with the other."""
    failures: list[BaseException] = []

    def follow() -> None:
        try:
            follow_files()
        except BaseException as failure:  # noqa: BLE001 - raised again where main tells of it
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
    signals: _Signals,
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
            for line in status_lines(pump.snapshot):
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


def _tellers(
    settings: Settings, pump: Pump, outbox: Outbox, receivers: list[Receiver], url: str
) -> Iterator[Courier | Alertmanager | Heartbeat]:
    """A thread for each receiver, Alertmanager and dead man's switch."""
    for receiver in receivers:
        courier = Courier(receiver, outbox, pace=settings.post_interval_seconds)
        pump.telling.couriers.append(courier)
        yield courier
    authorization = settings.alertmanager.authorization()
    for server in settings.alertmanager.urls:
        client = AlertmanagerClient(server, authorization=authorization)
        pulse = Pulse(lambda: pump.turns)
        log.info("%s is told what fires", client.name)
        yield Alertmanager(
            client,
            lambda: pump.snapshot,
            outbox,
            pulse=pulse,
            generator=url,
            external_labels=settings.external_labels,
        )
    if switch := settings.heartbeat.target():
        interval = settings.heartbeat.interval_seconds
        log.info("a dead man's switch is told every %g s", interval)
        yield Heartbeat(switch, interval, Pulse(lambda: pump.turns), outbox)


def _probing(settings: Settings, waker: Waker) -> Probing | None:
    """Asks this host of runs that stall, unless the user does not want it asked."""
    if not settings.probe.enabled:
        return None
    return Probing(HostProbe(), this_host(), lambda: waker.ring(Path()))


def _heed(signals: _Signals, heed: Callable[[Handler], None] | None, stack: ExitStack) -> None:
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
    signals: _Signals,
    *,
    source: Source,
    room: Room,
    gate: Gate,
) -> Server:
    """A server on the address that was asked for, or on the first free port after the default."""
    host, first = settings.listen_address
    tries = 1 if settings.listen_is_explicit else PORTS_TRIED
    for port in range(first, first + tries):
        try:
            server = Server(
                host,
                port,
                snapshot=lambda: pump.snapshot,
                notifications=outbox.counts,
                behind=pump.follower.behind,
                ready=lambda: pump.caught_up,
                redact=redact,
                reload=signals.ask_reload,
                silencing=silences,
                takes_commands=_is_loopback(host),
                source=source,
                free=lambda: room.free,
                gate=gate,
            )
        except OSError as error:
            taken = error
            if error.errno != errno.EADDRINUSE:
                break
            continue
        if port != first:
            log.warning("port %d is taken: listening on %s:%d", first, host, port)
        server.start()
        if not _is_loopback(host) and not gate.access().asks:
            log.warning(
                "whoever reaches %s:%d may read what is told of the logs: see --web-config",
                host,
                port,
            )
        return server
    raise UsageError(
        f"cannot listen on {host}:{first} ({taken.strerror})",
        where="listen",
        remedy="choose another address with --listen HOST:PORT",
    ) from taken


def _let_prometheus_find(settings: Settings, server: Server, gate: Gate) -> Callable[[], None]:
    """Write the file of its service discovery, where one is wanted; returns how to take it away."""
    if settings.file_sd is None:
        return lambda: None
    address = target(settings.listen_address[0], server.port, socket.gethostname())
    scheme = {"__scheme__": "https"} if gate.encrypts else {}
    file = FileSd(settings.file_sd, address, settings.external_labels | scheme)
    log.info("Prometheus finds %s by %s", address, settings.file_sd)
    return file.remove


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


def _url(host: str, port: int, gate: Gate) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if gate.encrypts else 'http'}://{shown}:{port}"


def _is_loopback(host: str) -> bool:
    """Commands over HTTP are taken from this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
