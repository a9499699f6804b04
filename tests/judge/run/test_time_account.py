"""Where the time of a run went, by its steps and what was announced between them."""

import math
import random
from collections.abc import Iterable
from itertools import accumulate, repeat
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.records import Position, Sample
from ldlm_monitor.judge.run.accounted_steps import AccountedSteps
from ldlm_monitor.judge.run.file_rows import FileRows, FileSteps
from ldlm_monitor.judge.run.time_account import MARKS, TimeAccount

START = 1769681700.0


def account(
    rows: Iterable[tuple[int, float]], *events: tuple[str, float], limit: float = math.inf
) -> TimeAccount:
    """The account of steps at their times, of which each fall is a resume."""
    found, waiting, last = TimeAccount(), sorted(events, key=itemgetter(1)), (0, 0.0)
    for step, at in rows:
        while waiting and waiting[0][1] < at:
            found.explain(*waiting.pop(0))
        if step < last[0]:
            found.resume(step, at)
        elif step > last[0] or not last[1]:
            found.advance((step,), (at,), exact=True, stalled=at - last[1] > limit)
        last = step, at
    return found


def test_an_evaluation_that_the_log_announces_is_no_unexplained_pause() -> None:
    rows = [(s, s + (30 if s > 50 else 0) + (10 if s > 95 else 0)) for s in range(100)]
    found = account(rows, ("evaluation", 50.0), ("checkpoint", 125.5)).read(0.0, 139.0, "running")
    assert found is not None
    losses = {spent.what: spent.seconds for spent in found.losses}
    assert losses == {"evaluation": pytest.approx(30), "checkpoint": pytest.approx(10)}


def test_an_evaluation_that_is_announced_counts_though_it_is_short() -> None:
    """A second and a half, where a step takes one: without a word it might be a slow step."""
    rows = [(step, step + (1.5 if step > 50 else 0)) for step in range(100)]
    found = account(rows, ("evaluation", 50.2)).read(0.0, 100.5, "running")
    assert found is not None
    assert [(spent.what, spent.seconds) for spent in found.losses] == [("evaluation", 1.5)]


@given(st.lists(st.tuples(st.integers(-30, 5), st.floats(0.01, 50)), min_size=3, max_size=60))
def test_every_second_is_counted_once(moves: list[tuple[int, float]]) -> None:
    """Whatever steps come when: productive time and losses are the time from start to end."""
    rows, step, at = [(100, 0.0)], 100, 0.0
    for move, seconds in moves:
        step, at = max(step + (move or 1), 0), at + seconds
        rows.append((step, at))
    found = account(rows, ("checkpoint", at / 2)).read(0.0, at, "running")
    if found is not None:
        lost = sum(loss.seconds for loss in found.losses)
        assert found.total_seconds == pytest.approx(found.productive_seconds + lost)
        assert found.total_seconds == pytest.approx(at)


@given(
    st.lists(st.sampled_from([1, 1, 1, 1, 2, 50]), min_size=30, max_size=400),
    st.lists(st.sampled_from([0.5, 0.5, 0.5, 0.5, 0.75, 0.0, 9.0]), min_size=400, max_size=400),
    st.lists(st.integers(1, 90), max_size=20),
    st.booleans(),
)
def test_steps_together_have_the_account_of_each_alone(
    moves: list[int], gaps: list[float], counts: list[int], waits: bool
) -> None:
    """Of equal and other distances, with pauses and stalls of the clock, before and after marks."""
    steps = [*accumulate(moves, initial=2000)]
    times = [*accumulate(gaps[: len(moves)], initial=START)]
    waited = [0.125 if step % 7 else 0.0 for step in steps] if waits else []
    alone, together, start = TimeAccount(), TimeAccount(), 0
    for step in range(2000):  # so many that the marks are soon full
        for each in (alone, together):
            each.advance((step,), (START - 2000 + step,), exact=True)
    for step, at, wait in zip(steps, times, waited or repeat(0.0), strict=False):
        alone.advance((step,), (at,), exact=True, waits=(wait,))
    for count in [*counts, len(steps)]:
        part = slice(start, start + count)
        together.advance(steps[part], times[part], exact=True, waits=waited[part])
        start += count
    for each in (alone, together):
        each.resume(2100, times[-1] + 60)
    assert alone.read(START, None, "running") == together.read(START, None, "running")
    assert alone._marks == together._marks


def test_a_long_run_keeps_a_bounded_account_and_goes_back_rightly() -> None:
    """20,000 steps of 1 s, then from 15,000 on again after 100 s, to 20,000."""
    first = [(step, 1.0 + step) for step in range(20_000)]
    found = account([*first, *((15_000 + n, 20_100.0 + n) for n in range(5_000))])
    assert len(found._marks) <= MARKS + 1
    spent = found.read(1.0, None, "running")
    assert spent is not None
    losses = {each.what: each.seconds for each in spent.losses}
    assert losses["steps taken again"] == pytest.approx(5_000, abs=20)
    assert losses["restart"] == pytest.approx(100, abs=2)
    assert spent.productive_seconds == pytest.approx(20_000, abs=20)


@pytest.mark.parametrize("seed", range(30))
def test_a_scripted_run_is_accounted_for_as_it_was_made(seed: int) -> None:
    """Kills, resumes, evaluations, pauses and stalls of 300 steps, within 1 % of the time.

    A pause among steps that a resume took again is lost with these steps.
    """
    rng = random.Random(seed)
    events: list[tuple[str, float]] = []
    at = 0.0
    truth = dict.fromkeys(("evaluation", "stall", "unexplained pause", "restart"), 0.0)
    redone, failures, step, again_until = 0.0, 0, 0, -1
    paused_at: list[tuple[int, str, float]] = []
    steps = [(step, at)]
    while step < 300:
        step += 1
        what = rng.choices(("step", "kill", *list(truth)[:3]), (90, 1, 2, 1, 2))[0]
        if what == "kill" and step > again_until + 25:
            back, down = rng.randint(5, 20), rng.uniform(30, 200)
            again_until, step = step - 1, step - back
            redone += back
            for _, cause, seconds in (each for each in paused_at if each[0] >= step):
                truth[cause] -= seconds
                redone += seconds
            failures += 1
            truth["restart"] += down
            at += down
        elif what in truth and step > again_until + 1:
            paused = rng.uniform(100, 200) if what == "stall" else rng.uniform(10, 40)
            truth[what] += paused
            paused_at.append((step, what, paused))
            if what == "evaluation":
                events.append(("evaluation", at + 0.1))
            at += paused
        at += 1.0
        steps.append((step, at))
    found = account(steps, *events, limit=60.0).read(0.0, at, "running")
    assert found is not None
    truth["steps taken again"] = redone
    losses = {spent.what: spent.seconds for spent in found.losses}
    for what, seconds in truth.items():
        assert losses.get(what, 0.0) == pytest.approx(seconds, abs=0.01 * at), what
    assert found.productive_seconds == pytest.approx(300, abs=0.01 * at)
    lost = truth["stall"] + truth["restart"] + redone
    assert found.ettr == pytest.approx(1 - lost / at, abs=0.01)
    assert found.failures == failures
    if failures:
        up = pytest.approx((at - truth["restart"]) / failures, rel=0.01)
        assert found.mttf_seconds == up


def a_step(step: int, at: float, *, epoch: float | None = None, path: str = "r.log") -> Sample:
    place = Position(path, 1, 0)
    return Sample(run="r", step=step, epoch=epoch, time=at, values={}, position=place)


def alone(sample: Sample, at: float) -> FileRows:
    return FileSteps().rows(sample, (at,), timed=True)


def test_gpu_hours_are_those_of_all_ranks() -> None:
    steps = AccountedSteps()
    for step in range(100):
        sample = a_step(step, 36.0 * step)
        steps.observe(alone(sample, 36.0 * step), stalled=False)
    found = steps.read(0.0, 3600.0, "running", 0, ranks=8)
    assert found is not None
    assert found.gpu_hours == pytest.approx(8)


def test_a_node_that_is_a_step_behind_is_no_resume() -> None:
    steps = AccountedSteps()
    for step in range(50):
        for path, behind in (("a.log", 0), ("b.log", 1)):
            at = step + 0.1 * behind
            sample = a_step(max(step - behind, 0), at, path=path)
            steps.observe(alone(sample, at), stalled=False)
    assert steps.account.resumed_at == []


def test_steps_that_begin_again_with_each_epoch_are_no_resumes() -> None:
    steps = AccountedSteps()
    for count in range(60):
        epoch, step = divmod(count, 20)
        sample = a_step(step, float(count), epoch=float(epoch))
        steps.observe(alone(sample, float(count)), stalled=False)
    found = steps.read(0.0, 59.0, "running", 0, ranks=None)
    assert steps.account.resumed_at == []
    assert found is not None
    assert found.share == 1.0


@pytest.mark.parametrize(("ahead", "lost"), [(9.0, 9), (10.0, 10), (10.5, 0)])
def test_a_rows_own_clock_counts_up_to_ten_seconds_from_that_of_its_piece(
    ahead: float, lost: float
) -> None:
    """From step 50 on the rows' own times are another host's."""
    steps = AccountedSteps()
    for step in range(100):
        own = step + (ahead if step >= 50 else 0.0)
        steps.observe(alone(a_step(step, own), float(step)), stalled=False)
    found = steps.read(0.0, None, "running", 0, ranks=None)
    assert found is not None
    assert sum(loss.seconds for loss in found.losses) == pytest.approx(lost)


def test_another_host_further_behind_than_ten_seconds_takes_no_time_from_the_run() -> None:
    spans = []
    for behind in (0.0, 10.0, 10.5):
        steps = AccountedSteps()
        for step in range(100):
            steps.observe(alone(a_step(step, step - behind), float(step)), stalled=False)
        found = steps.read(0.0, 99.0, "running", 0, ranks=None)
        assert found is not None
        spans.append({loss.what: loss.seconds for loss in found.losses})
    assert spans == [{}, {"after the last step": 10.0}, {}]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.sampled_from([0.0, 0.0, 0.0, 1.0, 7.0, 300.0]))),
    st.integers(1, 7),
)
def test_steps_without_times_of_their_own_count_alike_together_and_one_by_one(
    rises: list[tuple[int, float]], size: int
) -> None:
    """Bars come in pieces of some seconds, in each of which several come at once."""
    steps = [*accumulate(step for step, _ in rises)]
    times = [*accumulate(seconds for _, seconds in rises)]
    together, alone = TimeAccount(), TimeAccount()
    for start in range(0, len(steps), size):
        part = slice(start, start + size)
        together.advance(steps[part], times[part], exact=False)
    for step, at in zip(steps, times, strict=True):
        alone.advance([step], [at], exact=False)
    end = times[-1] + 5 if times else 5.0
    assert together.read(0.0, end, "running") == alone.read(0.0, end, "running")
