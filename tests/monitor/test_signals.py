"""Signals and requests that reach the daemon at an awkward moment."""

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from polling import PollingWaker
from test_restart import NOW, Watched, bars

from ldlm_monitor.config import Settings
from ldlm_monitor.daemon.daemon import _turn
from ldlm_monitor.daemon.dispatcher import Dispatcher
from ldlm_monitor.daemon.pump import Pump
from ldlm_monitor.daemon.signals import CutShort, Signals
from ldlm_monitor.notify.outbox import Outbox
from ldlm_monitor.source.file_system import DIRECT
from ldlm_monitor.state.state_store import StateStore


@pytest.fixture
def signals() -> Iterator[Signals]:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield Signals()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_second_signal_does_not_cut_short_what_the_first_one_began(signals: Signals) -> None:
    signals.cuts_short = True
    with pytest.raises(CutShort):
        os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
    assert signals.stop


@pytest.mark.parametrize("in_main_thread", [True, False])
def test_a_signal_cuts_the_first_reading_short_only_if_it_is_in_the_main_thread(
    tmp_path: Path, signals: Signals, in_main_thread: bool
) -> None:
    watched = Watched(tmp_path)
    watched.write(bars(0, 40), 40)
    seen: set[bool] = set()

    def stat(path: Path) -> os.stat_result:
        seen.add(signals.cuts_short)
        return DIRECT.stat(path)

    outbox = Outbox(tmp_path / "outbox.sqlite")
    pump = Pump(
        Settings(files=(str(tmp_path / "*.log"),)),
        outbox,
        StateStore(tmp_path / "ledger.sqlite"),
        Dispatcher(outbox, []),
        PollingWaker(),
        disk=replace(DIRECT, stat=stat),
    )
    seen.clear()
    turn = threading.Thread(target=_turn, args=(pump, signals, set(), NOW + 41))
    turn.run() if in_main_thread else turn.start()
    if not in_main_thread:
        turn.join()
    assert pump.caught_up
    assert seen == {in_main_thread}
    assert not signals.cuts_short
    pump.close()
    outbox.close()


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
