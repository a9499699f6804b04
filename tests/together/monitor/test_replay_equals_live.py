"""A replay of finished logs reports what following them live did, where the logs have times.

The logs are drawn: runs that train, evaluate, stall, meet NaN, crash. Live is the real pump on
real files, which grow at the drawn times, cut anywhere; only the time is an argument. The
replay then reads the same files. Where nothing but order and whole seconds is known, the
docstrings say how much of it can be promised.
"""

import math
import tempfile
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.daemon import reading_lag
from ldlm_monitor.service.daemon.dispatcher import Dispatcher
from ldlm_monitor.service.notify.outbox import Outbox
from tests.service.daemon.failing_lines import NAN, NCCL, OOM, TRACEBACK
from tests.service.daemon.watching import Watching, append

START = 1_769_681_700.0


class Write(NamedTuple):
    """Bytes that a file gets at a time (Unix seconds)."""

    at: float
    path: str
    data: bytes


class Listening(Dispatcher):
    """Also keeps every transition that it was given."""

    def __init__(self, reported: list[Transition], outbox: Outbox, names: list[str]) -> None:
        super().__init__(outbox, names)
        self.reported = reported
        self.news: list[Transition] = []

    def dispatch(self, transitions, now, *, notify=True) -> None:
        self.reported += [each for each in transitions if not each.is_heartbeat]
        super().dispatch(transitions, now, notify=notify)

    def dispatch_history(self, passed, now, *, recent) -> None:
        self.reported += [each for each, _ in passed if not each.is_heartbeat]
        self.news += [each for each, news in passed if news and not each.is_heartbeat]


def live(folder: Path, writes: list[Write]) -> list[Transition]:
    """What a pump that looks after each write reports; all files are there before.

    A real one looks each second: the pauses between these looks are silence all the same.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading_lag, "LATE_SECONDS", math.inf)
        return _live(folder, writes)


def _live(folder: Path, writes: list[Write]) -> list[Transition]:
    wanted = Settings(files=(str(folder / "logs"),), companions=False)
    for path in {write.path for write in writes}:
        (folder / "logs" / path).touch()
    reported: list[Transition] = []
    watching = Watching()
    watching.start(wanted, folder, receivers=(), dispatcher=partial(Listening, reported))
    watching.pump.turn(None, writes[0].at - 1.0)
    for write in writes:
        path = folder / "logs" / write.path
        if write.data:
            append(path, write.data, write.at)
        watching.pump.turn(None, write.at)
    watching.kill()
    return reported


def restarted(folder: Path, at: float) -> list[Transition]:
    """What a pump on the state that another left finds to have passed.

    News is what came after the last commit, from which on a kill may have lost it.
    """
    wanted = Settings(files=(str(folder / "logs"),), companions=False)
    passed: list[Transition] = []
    watching = Watching()
    watching.start(wanted, folder, receivers=(), dispatcher=partial(Listening, passed))
    committed = watching.ledger.load()
    watching.pump.turn(None, at)
    watching.kill()
    assert committed is not None
    assert watching.pump.dispatcher.news == [each for each in passed if each.time > committed.clock]
    return passed


def replayed(folder: Path) -> list[Transition]:
    """What the replay reports."""
    wanted = Settings(files=(str(folder / "logs"),), companions=False)
    return [each for each in Replay(wanted).transitions() if not each.is_heartbeat]


def before(end: float, reported: list[Transition]) -> list[Transition]:
    """Those before the last byte came: at which the replay, not knowing more, makes an end."""
    return [each for each in reported if each.time is None or each.time < end]


STEP = st.sampled_from(["step"] * 12 + ["nan", "inf", "high", "eval", "untold", "torn", "back"])
PAUSE = st.sampled_from([0.0, 0.01, 0.13, 0.5, 1.0, 1.0, 1.0, 2.75, 7.0, 33.3, 130.0, 700.0])


@dataclass
class Rows:
    """A file of rows that have their times, as it is written."""

    path: str
    step: int = 0

    def row(self, kind: str, at: float) -> str:
        self.step = max(0, self.step - 7) if kind == "back" else self.step + 1
        reported = {"nan": "NaN", "inf": "Infinity", "high": "1e30"}.get(kind, "2.5")
        norm = 500.0 if kind == "high" else 1.0 + self.step % 3
        if kind == "eval":
            return f'{{"step": {self.step}, "time": {at!r}, "eval_loss": 2.25}}\n'
        if kind == "torn":
            return f'{{"step": {self.step}, "time": {at!r}, "lo\n'
        more = "" if kind == "untold" else f', "loss": {reported}'
        return f'{{"step": {self.step}, "time": {at!r}, "grad_norm": {norm}{more}}}\n'


@st.composite
def rows_as_written(draw: st.DrawFn) -> list[Write]:
    """Rows of one to three files, each complete at its own time; some are begun before."""
    files = [Rows(f"{name}.jsonl") for name in "abc"[: draw(st.integers(1, 3))]]
    at = START + draw(st.sampled_from([0.0, 0.31, 4.99]))
    writes: list[Write] = []
    for _ in range(draw(st.integers(1, 8))):
        among = draw(st.lists(st.sampled_from(files), min_size=1, max_size=3))
        kinds = draw(st.lists(STEP, min_size=1, max_size=30))
        pause, first = draw(st.sampled_from([0.05, 0.25, 1.0, 1.5])), draw(PAUSE)
        at = round(at + first, 2)
        for kind, file in zip(kinds, cycle(among)):
            data = file.row(kind, at).encode()
            cut = draw(st.sampled_from([0, 0, 0, 1, len(data) // 2, len(data) - 1]))
            if cut:
                before = writes[-1].at if writes else at
                writes.append(Write(before, file.path, data[:cut]))
                data = data[cut:]
            writes.append(Write(at, file.path, data))
            at = round(at + pause, 2)
    return writes


def exactly(transition: Transition) -> tuple[object, ...]:
    reported = (transition.time, transition.alert, transition.state, transition.previous)
    labels = tuple(sorted(transition.labels.items()))
    where = (transition.position, transition.step)
    return *reported, transition.reason, labels, repr(transition.value), transition.active_at, where


def compare_rows(writes: list[Write]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "logs").mkdir()
        end = writes[-1].at
        reported = before(end, live(folder, writes))
        again = before(end, replayed(folder))
        assert [exactly(each) for each in again] == [exactly(each) for each in reported]
        again = before(end, restarted(folder, end))
        assert [exactly(each) for each in again] == [exactly(each) for each in reported]


ROWS = settings(
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)


@ROWS
@given(rows_as_written())
def test_rows_that_tell_their_times_are_replayed_as_they_came(writes: list[Write]) -> None:
    """The same transitions at the same times, of the same lines, in the same order."""
    compare_rows(writes)


@pytest.mark.long
@settings(ROWS, max_examples=3_000)
@given(rows_as_written())
def test_rows_that_tell_their_times_are_replayed_as_they_came_at_length(
    writes: list[Write],
) -> None:
    compare_rows(writes)


# Bars come by their own seconds, so a line of a fixed time would be of another moment.
UNTIMED = NCCL.replace("[E129 10:15:00.000000000 ", "[E ")
REMARKS = st.sampled_from(["", "", "", "", NAN, OOM, UNTIMED])
LATE_SECONDS = 20.0
"""A bar has whole seconds, one that is not ended is read two seconds later, the grid of
evaluations is five seconds wide; and a crash is believed after ten seconds of silence, which
at the end of a finished log are not waited for."""
TIMED = ("Throughput", "TrainingStalled")


def clock(seconds: float) -> str:
    """As tqdm writes elapsed time."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute:02d}:{second:02d}"


@st.composite
def bars_as_written(draw: st.DrawFn) -> list[Write]:
    """A log of bars: remarks follow one at once, pauses are short, an evaluation or a stall."""
    path, begun = "train_20260129_101500_node0.log", START + draw(st.sampled_from([0.0, 0.4, 0.99]))
    writes = [Write(begun, path, b"* World size: 2\n")]
    at, step = begun, 0
    for _ in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):
            batch_seconds = draw(st.sampled_from([0.5, 6.3, 20.0]))
            for batch in range(20):
                elapsed = clock(batch * batch_seconds)
                bar = f"\rEval: {5 * batch:2d}%|██ | {batch}/20 [{elapsed}<09:00,  6.00s/it]\x1b[A"
                writes.append(Write(at, path, bar.encode()))
                at = round(at + batch_seconds, 2)
        at = round(at + draw(st.sampled_from([0.3, 2.0, 15.0, 1500.0])), 2)
        for _ in range(draw(st.integers(5, 40))):
            at, step = round(at + draw(st.sampled_from([0.5, 1.0, 1.0, 3.3])), 2), step + 1
            text = (
                f"\rTraining:   1%|▏         | {step}/9500 [{clock(at - begun)}<9:00:00,  "
                "1.00it/s, Epoch=0/1, Progress=1.0%, Loss=2.5, Text=2.5]"
            )
            remark = draw(REMARKS)
            data = (text + ("\n" + remark if remark else "")).encode()
            cut = draw(st.sampled_from([0, 0, 0, 1, len(data) // 2]))
            writes += [Write(at, path, part) for part in (data[:cut], data[cut:]) if part]
    if draw(st.booleans()):
        writes.append(Write(at + 0.5, path, b"\n" + TRACEBACK.encode()))
    return writes


def roughly(reported: list[Transition]) -> dict[str, list[tuple[str, float]]]:
    """By alert instance, the states that it went through and when.

    Not of those that measure how long steps take, or a pause by a limit that steps teach:
    whole seconds are too coarse for them.
    """
    found: dict[str, list[tuple[str, float]]] = {}
    for each in (each for each in reported if not each.alert.startswith(TIMED)):
        found.setdefault(each.key, []).append((each.state, each.time or 0.0))
    return found


def compare_bars(writes: list[Write]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "logs").mkdir()
        quiet = [Write(writes[-1].at + after, writes[-1].path, b"") for after in (2.5, 20.0)]
        came, again = roughly(live(folder, writes + quiet)), roughly(replayed(folder))
        assert {key: [state for state, _ in states] for key, states in again.items()} == {
            key: [state for state, _ in states] for key, states in came.items()
        }
        for key, states in came.items():
            for (state, at), (_, replayed_at) in zip(states, again[key], strict=True):
                assert abs(at - replayed_at) < LATE_SECONDS, (key, state)


@ROWS
@given(bars_as_written())
def test_bars_are_replayed_as_they_came_but_for_some_seconds(writes: list[Write]) -> None:
    """Each alert goes through the same states within twenty seconds.

    Bars have whole seconds of elapsed time, the file when it was last written, and a line
    without a time came when the bar before it did: that is all a replay knows. So nothing is
    promised of a line that came long after its bar, nor of how fast the steps were, nor of
    stalls, whose limit the steps teach.
    """
    compare_bars(writes)


@pytest.mark.long
@settings(ROWS, max_examples=1_000)
@given(bars_as_written())
def test_bars_are_replayed_as_they_came_but_for_some_seconds_at_length(
    writes: list[Write],
) -> None:
    compare_bars(writes)
