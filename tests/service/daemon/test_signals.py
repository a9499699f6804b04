"""Signals, requests and bytes that reach the daemon at an awkward moment."""

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ldlm_monitor.logs.source.file_system import DIRECT
from ldlm_monitor.logs.source.split import PEEK_SECONDS
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.daemon.pump import CutShort
from ldlm_monitor.service.daemon.stop_signals import Signals
from tests.service.daemon.test_restart import Watched
from tests.service.daemon.watching import NOW, PollingWaker, Watching, bars


@pytest.fixture
def signals() -> Iterator[Signals]:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield Signals()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_stop_during_the_first_reading_ends_it_and_keeps_no_state(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.write(bars(0, 40), 40)
    stops = False

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        nonlocal stops
        stops = True
        return DIRECT.pread(descriptor, size, offset)

    settings = Settings(files=(str(tmp_path / "*.log"),))
    disk = replace(DIRECT, pread=pread)
    watched.start(settings, tmp_path, receivers=(), disk=disk, stopping=lambda: stops)
    with pytest.raises(CutShort):
        watched.look(41)
    watched.pump.close()
    assert not watched.pump.caught_up
    assert watched.pump.snapshot.runs == ()
    assert watched.ledger.load() is None
    watched.kill()


def test_an_unfinished_line_of_standard_input_is_looked_at_as_soon_as_one_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    came = threading.Event()
    waker = PollingWaker()
    monkeypatch.setattr(waker, "ring", lambda path: came.set())
    watching = Watching()
    with os.fdopen(reading, "rb") as stream, monkeypatch.context() as patched:
        patched.setattr("sys.stdin", SimpleNamespace(buffer=stream))
        watching.start(Settings(files=("-",)), tmp_path, receivers=(), waker=waker)
        pump = watching.pump
        pump.turn(None, NOW)
        os.write(writing, b"Training:   1%|1/95 [00:01<01:34,  1.00it/s, Loss=2.5]")
        assert came.wait(30)
        pump.turn(set(), NOW + 0.1)
        assert pump.pause(NOW + 0.1) <= PEEK_SECONDS
        os.close(writing)
        while not pump.ended:
            pump.turn(set(), NOW + 0.2)
        watching.close()


def test_a_reload_that_is_asked_for_during_another_one_follows_it(signals: Signals) -> None:
    loads: list[str] = []

    def load() -> str:
        loads.append("")
        if len(loads) == 1:
            os.kill(os.getpid(), signal.SIGHUP)
        return ""

    signals.reload = True
    while signals.reload:
        signals.run_reload(load)
    assert len(loads) == 2
