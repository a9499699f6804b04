"""The engine room: threads and signals. Only this file knows them."""

from __future__ import annotations

import errno
import logging
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from ldlm_monitor.config import Settings
from ldlm_monitor.errors import UsageError
from ldlm_monitor.lines import status_lines
from ldlm_monitor.notify import Courier, Outbox, SlackWebhook, how_to_configure, redact
from ldlm_monitor.pump import Pump
from ldlm_monitor.serve import Server
from ldlm_monitor.source import Journal, Waker, WatchdogWaker
from ldlm_monitor.state_dir import StateDir, default_state_dir

PORTS_TRIED = 20
COURIER_SECONDS = 1.0
"""How long the end waits for a receiver's answer."""

log = logging.getLogger(__name__)


class _Stop:
    """What a signal asks for: the end, and with which exit code."""

    def __init__(self, waker: Waker) -> None:
        self._waker = waker
        self.asked = False
        self.exit_code = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self.exit_code = 130 if number == signal.SIGINT else 0
        self._waker.ring(Path())


def run(settings: Settings) -> int:
    """Follow the files until SIGTERM or SIGINT; returns the exit code.

    Raises `UsageError` where the settings cannot be used, or where a daemon on the
    same inputs runs already.
    """
    with ExitStack() as stack:
        receivers = _receivers(settings)
        wanted = settings.state_dir or default_state_dir(settings.files, Path.cwd())
        state = StateDir(wanted)
        stack.callback(state.close)
        outbox = Outbox(state.path / "outbox.sqlite")
        stack.callback(outbox.close)
        journal = Journal()
        waker = WatchdogWaker(journal)
        stack.callback(waker.close)
        pump = Pump(settings, outbox, [receiver.name for receiver in receivers], waker)
        stack.callback(pump.close)
        stop = _Stop(waker)
        for number in (signal.SIGTERM, signal.SIGINT):
            stack.callback(signal.signal, number, signal.signal(number, stop))
        server = _serve(settings, pump, outbox)
        stack.callback(server.stop)
        for receiver in receivers:
            courier = Courier(receiver, outbox)
            courier.start()
            stack.callback(courier.stop, COURIER_SECONDS)
            pump.couriers.append(courier)
        _greet(pump, state, f"http://{settings.listen_address[0]}:{server.port}", receivers)
        waker.watch(pump.patterns.folders())
        _follow(settings, pump, waker, journal, stop)
    return stop.exit_code


def _follow(settings: Settings, pump: Pump, waker: Waker, journal: Journal, stop: _Stop) -> None:
    status_at = time.time() + settings.interval
    dirty: set[Path] = set()
    while not stop.asked:
        now = time.time()
        pump.turn(dirty, now)
        if now >= status_at:
            status_at = now + settings.interval
            for line in status_lines(pump.snapshot):
                print(line, flush=True)
        for notice in journal.drain():
            log.warning("%s", notice)
        dirty = waker.wait(pump.pause(time.time()))
    pump.turn((), time.time())


def _receivers(settings: Settings) -> list[SlackWebhook]:
    url = settings.slack.secret()
    return [] if url is None else [SlackWebhook(url)]


def _serve(settings: Settings, pump: Pump, outbox: Outbox) -> Server:
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
            )
        except OSError as error:
            taken = error
            if error.errno != errno.EADDRINUSE:
                break
            continue
        if port != first:
            log.warning("port %d is taken: listening on %s:%d", first, host, port)
        server.start()
        return server
    raise UsageError(
        f"cannot listen on {host}:{first} ({taken.strerror})",
        where="listen",
        remedy="choose another address with --listen HOST:PORT",
    ) from taken


def _greet(pump: Pump, state: StateDir, url: str, receivers: list[SlackWebhook]) -> None:
    state.announce(url)
    if state.notice:
        log.error("%s", state.notice)
    log.info("metrics on %s/metrics, state in %s", url, state.path)
    for argument in pump.patterns.missing():
        log.info("%s: nothing there yet, waiting for it", argument)
    if not receivers:
        log.info("%s", how_to_configure())
    sys.stdout.flush()
