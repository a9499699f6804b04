"""All runs together: whose timers are due, whose hosts are looked at, which are exported."""

from __future__ import annotations

import math

from ldlm_monitor.base.records import Event, Position, Sample, TimedRows
from ldlm_monitor.judge.run.fleet import DUE_SECONDS, Fleet
from ldlm_monitor.judge.run.stall import Stall

STEPS = 100


def step(run: str, number: int) -> Sample:
    return Sample(run=run, step=number, values={}, position=Position(f"{run}.log", number + 1, 0))


def take(fleet: Fleet, run: str, numbers: range, first: float) -> None:
    """Steps of a run, one a second from `first` on."""
    for number in numbers:
        at, record = first + number - numbers.start, step(run, number)
        training = fleet.of(record, at)
        training.observe([TimedRows(record, (at,))], at)
        fleet.touch(training)


def died(fleet: Fleet, run: str, at: float) -> None:
    event = Event(
        kind="python_exception", severity="error", run=run, message="ValueError: x",
        fields={"role": "root", "family": "process", "traceback": "..."},
        position=Position(f"{run}.log", 1000, 0),
    )  # fmt: skip
    training = fleet.of(event, at)
    training.observe([TimedRows(event, (at,))], at)
    fleet.touch(training)


def trained(*runs: str) -> Fleet:
    fleet = Fleet(Stall(), end_after=900.0)
    for run in runs:
        take(fleet, run, range(STEPS), 0.0)
    return fleet


def states(fleet: Fleet) -> dict[str, str]:
    return {run.name: run.life.state for run in fleet}


def near(fleet: Fleet, until: float, ended_since: float = math.inf, **how: float) -> set[str]:
    return {each.run for each in fleet.probe_candidates(until, ended_since, **how)}


def test_timers_run_once_they_are_due_and_a_step_sets_them_anew() -> None:
    fleet = trained("a", "b")
    limit = fleet.get("a").life.stalls_at  # type: ignore[union-attr]
    assert limit is not None
    assert fleet.due() == math.floor(limit / DUE_SECONDS) * DUE_SECONDS + DUE_SECONDS
    fleet.take_touched()
    assert not fleet.tick(limit)  # a timer is due before a time, not at it
    take(fleet, "b", range(STEPS, STEPS + 1), limit - 1)
    assert fleet.tick(limit + 0.1)
    assert states(fleet) == {"a": "stalled", "b": "running"}
    assert set(fleet.take_touched()) == {"a", "b"}
    assert not fleet.take_touched()
    assert fleet.due() > limit + 1
    assert Fleet(Stall(), 0.0).due() == math.inf


def test_hosts_are_looked_at_before_a_run_stalls_while_it_is_and_when_it_ended() -> None:
    fleet = trained("a", "b", "c")
    died(fleet, "c", STEPS + 10)
    limit = fleet.get("a").life.stalls_at  # type: ignore[union-attr]
    assert limit is not None
    assert near(fleet, STEPS + 19.0) == set()
    assert near(fleet, limit - 1) == {"c"}  # its end is certain then
    assert near(fleet, limit) == {"a", "b", "c"}
    fleet.tick(limit + 1)
    assert states(fleet) == {"a": "stalled", "b": "stalled", "c": "crashed"}
    assert near(fleet, 0.0) == {"a", "b"}
    ended = fleet.get("c").life.ended_at  # type: ignore[union-attr]
    assert ended is not None
    assert near(fleet, 0.0, ended) == {"a", "b", "c"}
    assert near(fleet, 0.0, ended + 0.1) == {"a", "b"}
    assert near(fleet, 0.0, since=STEPS + 0.0) == set()
    assert near(fleet, 0.0, since=STEPS - 1.0) == {"a", "b"}


def test_a_jump_of_the_clock_is_no_silence_of_runs_that_go_on() -> None:
    fleet = trained("a", "c")
    died(fleet, "c", STEPS + 10)
    fleet.tick(STEPS + 25.0)
    ended = fleet.get("c").life.ended_at  # type: ignore[union-attr]
    limit = fleet.get("a").life.stalls_at  # type: ignore[union-attr]
    assert limit is not None
    fleet.shift(3600.0)
    assert not fleet.tick(limit + 3599.0)
    assert fleet.tick(limit + 3601.0)
    assert fleet.get("c").life.ended_at == ended  # type: ignore[union-attr]


def test_the_time_between_two_launches_in_one_file_is_no_silence() -> None:
    fleet = trained("a", "b")
    for run in ("a", "b"):
        fleet.leave_out_before(step(run, STEPS), 500.0)  # a further step is no launch
    before = {run.name: run.life.stalls_at for run in fleet}
    start = Event(
        kind="run_started", severity="info", run="a", message="run a started",
        fields={"role": "progress", "family": "progress"}, position=Position("a.log", 200, 0),
    )  # fmt: skip
    fleet.leave_out_before(start, -1.0)
    assert {run.name: run.life.stalls_at for run in fleet} == before
    fleet.leave_out_before(start, 500.0)
    after = {run.name: run.life.stalls_at for run in fleet}
    assert after == {"a": before["a"] + 500.0, "b": before["b"]}  # type: ignore[operator]


def test_a_run_is_not_judged_beyond_what_was_read_of_it() -> None:
    fleet = trained("a", "b")
    limit = fleet.get("a").life.stalls_at  # type: ignore[union-attr]
    assert limit is not None
    assert fleet.hold({"a": 120.0}, judged=110.0)
    assert not fleet.hold({"a": 120.0}, judged=110.0)
    fleet.tick(limit + 1)
    assert states(fleet) == {"a": "running", "b": "stalled"}
    assert near(fleet, limit) == {"a", "b"}  # its host is looked at all the same
    assert fleet.hold({}, judged=limit + 1)
    fleet.tick(limit + 2)
    assert states(fleet) == {"a": "stalled", "b": "stalled"}


def test_files_that_end_before_those_of_others_are_silent_up_to_their_end_alone() -> None:
    fleet = trained("a", "b")
    fleet.set_ends({"a": 120.0})
    fleet.tick(10_000.0)
    assert states(fleet) == {"a": "running", "b": "stalled"}
    fleet.look("a", 10_000.0)  # a process of it was found: it writes on
    assert states(fleet)["a"] == "stalled"


def test_series_of_a_run_that_ended_go_after_a_while() -> None:
    fleet = trained("a", "c")
    died(fleet, "c", STEPS + 10)
    fleet.tick(STEPS + 300.0)
    ended = fleet.get("c").life.ended_at  # type: ignore[union-attr]
    assert ended is not None
    assert (fleet.has_ended("c"), fleet.has_ended("a"), fleet.has_ended("x")) == (
        True,
        False,
        False,
    )
    assert fleet.training() == {"a"}
    assert [run.name for run in fleet.shown(ended + 900.0)] == ["a", "c"]
    assert [run.name for run in fleet.shown(ended + 900.1)] == ["a"]
    assert len(fleet.points(ended + 900.1)) == 1
    assert fleet.active
    fleet.finish(ended + 1)
    assert not trained().active
