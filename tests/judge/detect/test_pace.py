"""Throughput, step time, ranks, memory, precision and checkpoints against their own past."""

import json
import random
from array import array
from pathlib import Path

import pytest

from ldlm_monitor.base.points import Measured
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.judge.detect.checkpoint_age import checkpoint_age
from ldlm_monitor.judge.detect.detector import Detector
from ldlm_monitor.judge.detect.detectors import Detectors
from ldlm_monitor.judge.detect.gradient import (
    GradientDetector,
    LossScaleDetector,
    OverflowDetector,
    skipped_share,
)
from ldlm_monitor.judge.detect.memory import MemoryDetector
from ldlm_monitor.judge.detect.throughput import RankDetector, ThroughputDetector
from ldlm_monitor.service.config import Settings

GIB = 2.0**30


def steps(count: int, seconds: float = 1.0, noise: float = 0.1, seed: int = 1) -> list[float]:
    """Step times with factors as noise and, one in a hundred, a hiccup of five times."""
    chance = random.Random(seed)
    return [
        seconds * chance.lognormvariate(0, noise) * (5 if chance.random() < 0.01 else 1)
        for _ in range(count)
    ]


def gauges(detector: Detector, values: list[float]) -> dict[str, float]:
    detector.update(values)
    return dict(detector.measures())


def drop(paces: list[float], first: int = 0) -> dict[str, float]:
    """The gauges after rows of each step, judged every five seconds."""
    detector, at, judged, fresh = ThroughputDetector(), 0.0, 0.0, list[float]()
    for step, seconds in enumerate(paces, first):
        at += seconds
        fresh.append(seconds)
        if at >= judged + 5:
            detector.update(fresh, at, step)
            judged, fresh = at, []
    return dict(detector.measures())


def test_throughput_is_compared_with_the_runs_own() -> None:
    steady = gauges(ThroughputDetector(), steps(500))
    assert steady["throughput_ratio"] > 0.9
    assert steady["throughput_drop_ratio"] == 0
    slowed = gauges(ThroughputDetector(), [*steps(500), *steps(30, 2.0)])
    assert slowed["throughput_ratio"] == pytest.approx(0.5, rel=0.15)
    assert slowed["throughput_drop_ratio"] == pytest.approx(0.5, rel=0.15)


@pytest.mark.parametrize("slow", [60, 600, 20_000], ids=["a minute", "ten minutes", "hours"])
def test_a_drop_lasts_since_its_step_until_the_pace_is_back(slow: int) -> None:
    lasting = [*steps(4800, 0.4), *steps(slow, 0.64, seed=2)]
    found = drop(lasting)
    assert found["throughput_drop_ratio"] == pytest.approx(0.37, abs=0.06)
    assert found["throughput_drop_step"] == pytest.approx(4800, abs=30)
    back = drop([*lasting, *steps(150, 0.4, seed=3)])
    assert back["throughput_drop_ratio"] == 0
    assert "throughput_drop_step" not in back


def test_slowness_after_the_first_steady_minute_is_a_drop() -> None:
    found = drop([3.0, *steps(900, 0.1), *steps(50, 1.0, seed=2)])
    assert found["throughput_drop_ratio"] == pytest.approx(0.9, abs=0.03)
    assert found["throughput_drop_step"] == pytest.approx(900, abs=100)


HEALTHY = {
    "a loader that is late at every fourth step": [0.2, 0.2, 0.2, 1.4] * 5000,
    "lines of training and of evaluation in turn": [8.5, 18.0] * 500,
    "an evaluation every 200 steps, slow steps after it": ([60.0, 3.0, 3.0] + [1.0] * 197) * 20,
    "a first epoch from a cold cache": [2.0] * 600 + [0.7] * 2000,
    "first steps that compile": [40.0, 20.0, *steps(2000, 0.3)],
    "a clock that is 3 % slower when it is warm": steps(2000, 0.5) + steps(2000, 0.515, seed=2),
    "lengths in buckets": [0.3 + 0.02 * (n % 50) for n in range(20_000)],
    "a page cache that is full": steps(2000, 0.5) + steps(5000, 0.62, seed=2),
}


@pytest.mark.parametrize("paces", HEALTHY.values(), ids=HEALTHY)
def test_paces_of_healthy_runs_have_no_drop(paces: list[float]) -> None:
    ends = range(len(paces) // 20, len(paces) + 1, len(paces) // 20)
    assert max(drop(paces[:end]).get("throughput_drop_ratio", 0.0) for end in ends) < 0.3


@pytest.mark.parametrize(
    ("restarts", "summaries"),
    [(False, {"a: slower since step 300, by 50%"}), (True, set())],
    ids=["one attempt", "another attempt, from the next step on"],
)
def test_a_drop_ends_with_its_attempt(tmp_path: Path, restarts: bool, summaries: set[str]) -> None:
    at = 1_780_000_000.0
    head = {"schema": "ldlm.health/1", "type": "run", "run": "a", "rank": 0, "world_size": 1}
    lines = [head | {"pid": 100, "time": at}]
    for step in range(1, 601):
        seconds = 1.0 if step <= 300 else 2.0
        at += seconds
        row = {"type": "step", "step": step, "time": at, "loss": 2.0 + step % 7}
        lines.append(row | {"step_seconds": seconds})
        if restarts and step == 300:
            at += 30
            lines.append(head | {"pid": 200, "time": at})
    (tmp_path / "health_rank0.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    found = Replay(Settings(files=(str(tmp_path),), run="a")).transitions()
    fired = [each for each in found if each.alert == "ThroughputDrop" and each.state == "firing"]
    assert {each.annotations["summary"] for each in fired} == summaries


def test_an_evaluation_between_steps_does_not_lower_throughput() -> None:
    assert gauges(ThroughputDetector(), [*steps(500), 120.0])["throughput_ratio"] > 0.9


@pytest.mark.parametrize(
    ("by_ranks", "slower", "alerts"),
    [(False, 2.0, {"ThroughputDrop"}), (True, 2.0, {"ThroughputDrop"}), (False, 1.1, set())],
    ids=["rows", "rows, then those of ranks", "hardly slower"],
)
def test_steps_of_a_twentieth_of_a_second_that_slow_down_are_alerted(
    tmp_path: Path, by_ranks: bool, slower: float, alerts: set[str]
) -> None:
    """The alert still fires when thousands of such steps have had the new pace.

    Rows of ranks, which are better, take the place of those that came before.
    """
    at, rows, own = 1_780_000_000.0, [], []
    for step, seconds in enumerate([*steps(4000, 0.05), *steps(1800, 0.05 * slower, seed=2)]):
        at += seconds
        row = {"step": step, "time": at, "loss": 2.0 + step % 7}
        rows.append(row | ({"step_seconds": seconds} if by_ranks else {}))
        own.append({"type": "step", **row, "time": at + 0.001, "step_seconds": seconds})
    head = {"schema": "ldlm.health/1", "type": "run", "run": "a", "rank": 0, "world_size": 1}
    written = {"training_log.jsonl": rows} | (
        {"health_rank0.jsonl": [head | {"time": own[0]["time"]}, *own]} if by_ranks else {}
    )
    for name, lines in written.items():
        (tmp_path / name).write_text("".join(json.dumps(each) + "\n" for each in lines))
    fired = {
        each.alert
        for each in Replay(Settings(files=(str(tmp_path),), run="a")).transitions()
        if each.state == "firing" and each.alert.startswith("Throughput")
    }
    assert fired == alerts


def test_variation_is_deviation_over_mean() -> None:
    assert gauges(ThroughputDetector(), [1.0, 3.0] * 25)["throughput_variation_ratio"] == 0.5


def test_memory_that_leaks_grows_in_every_quarter() -> None:
    leak = [(20 + 0.01 * n) * GIB for n in range(600)]
    assert gauges(MemoryDetector(), leak)["memory_growth_ratio"] > 0.02


@pytest.mark.parametrize(
    "memory",
    [
        [20 * GIB] * 600,
        [(20 if n < 300 else 30) * GIB for n in range(600)],
        [(20 + n % 50) * GIB for n in range(600)],
        [(5 + min(n, 120)) * GIB for n in range(600)],
    ],
    ids=["flat", "a new level", "a sawtooth", "a cache that fills up"],
)
def test_memory_that_is_used_does_not_grow_in_every_quarter(memory: list[float]) -> None:
    assert gauges(MemoryDetector(), memory)["memory_growth_ratio"] <= 0


def test_a_gradient_explosion_is_measured_by_factors() -> None:
    chance = random.Random(3)
    usual = [chance.lognormvariate(0, 0.4) for _ in range(300)]
    assert gauges(GradientDetector(), usual)["grad_norm_ratio"] < 2
    one = gauges(GradientDetector(), [*usual, 1000.0])
    assert one["grad_norm_zscore"] > 10
    assert one["grad_norm_ratio"] < 2
    assert gauges(GradientDetector(), [*usual, *[50.0] * 9])["grad_norm_ratio"] < 2
    assert gauges(GradientDetector(), [*usual, *[50.0] * 11])["grad_norm_ratio"] > 20
    assert gauges(GradientDetector(), [*usual[:100], *[50.0] * 400])["grad_norm_ratio"] > 20


def test_a_loss_scale_that_halves_and_doubles_has_not_collapsed() -> None:
    healthy = [65536.0 if n // 100 % 2 else 32768.0 for n in range(600)]
    assert gauges(LossScaleDetector(), healthy)["loss_scale_ratio"] >= 0.5
    falling = [65536.0 / 2**n for n in range(10)]
    assert gauges(LossScaleDetector(), [*healthy, *falling])["loss_scale_ratio"] < 1 / 100


def test_skipped_steps_count_once_the_loss_scale_has_calibrated() -> None:
    assert dict(skipped_share(299, range(299), 299)) == {}
    assert dict(skipped_share(9000, range(8000, 9000), 299)) == {}, "a scale is found again"
    assert dict(skipped_share(1000, range(802, 1002, 2), 1000)) == {"skipped_steps_ratio": 0.5}
    assert dict(skipped_share(1000, range(100), 1000)) == {"skipped_steps_ratio": 0.0}


def test_the_share_of_skipped_steps_is_that_of_the_log_when_the_step_is_from_another_file() -> None:
    ahead = dict(skipped_share(600, range(850, 950), 600))
    assert ahead == dict(skipped_share(949, range(850, 950), 949)) == {"skipped_steps_ratio": 1.0}


def test_a_checkpoint_is_late_by_the_runs_own_rhythm() -> None:
    assert dict(checkpoint_age(350, [100, 200, 300])) == {}
    assert dict(checkpoint_age(750, [100, 200, 300, 450])) == {"checkpoint_age_ratio": 2.0}


def test_ranks_are_compared_with_each_other() -> None:
    ranks = RankDetector()
    ranks.update_steps({0: 100, 1: 97})
    for rank, seconds in ((0, 1.0), (1, 1.0), (2, 1.5)):
        ranks.update_seconds(rank, [seconds] * 20)
    gauges = {(rank, name): value for rank, name, value in ranks.measures()}
    assert gauges[1, "rank_lag_steps"] == 3
    assert gauges[2, "rank_slowdown_ratio"] == 1.5


def test_the_time_before_a_rank_waits_for_others_shows_which_is_slow() -> None:
    """Ranks that wait for each other update the same time for a step."""
    detectors = Detectors("r")
    values = {
        (name, rank): array("d", [seconds] * 20)
        for rank, busy in ((0, 0.1), (1, 0.3))
        for name, seconds in (("step_seconds", 0.4), ("busy_seconds", busy))
    }
    detectors.update(
        Measured(values=values, step=20, rank_steps={}, skipped=(), checkpoints=(), resumed=False)
    )
    gauges = {
        dict(point.labels).get("rank"): point.value
        for point in detectors.points
        if point.name == "ldlm_detect_rank_slowdown_ratio"
    }
    assert gauges == {"0": pytest.approx(0.5), "1": pytest.approx(1.5)}


def test_one_rank_alone_is_behind_nobody() -> None:
    ranks = RankDetector()
    ranks.update_steps({0: 100})
    ranks.update_seconds(0, [1.0] * 20)
    assert list(ranks.measures()) == []


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("norms", "explained"),
    [
        ([NAN], 1),
        ([INF, INF, NAN, INF, 1.0, 1.2], 4),
        ([NAN, 1.0, *[1.2] * 500, INF, 1.1, INF, INF, 0.9], 4),
        ([INF] * 5, 0),
        ([NAN, 1.0, INF, INF, INF], 1),
        ([1.0, NAN, 1.0], 0),
        ([1.0, 2.0], 0),
    ],
    ids=["one", "first", "raised again", "too many", "more in a row", "out of the blue", "none"],
)
def test_a_loss_scale_explains_the_first_norms_that_overflow_and_few_later_ones(
    norms: list[float], explained: int
) -> None:
    assert gauges(OverflowDetector(), norms).get("grad_norm_overflow_steps", 0) == explained
