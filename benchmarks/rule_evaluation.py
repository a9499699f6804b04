"""What one evaluation of all rules takes over a thousand series, what a range query takes over 800,
and what a kept sample weighs.

Everything stands in one process, without logs: the store is fed an hour of scrapes, and then the
rules are asked after each of some more, none of their answers being kept. For the memory every
series changes at every scrape, which is the most that a sample can weigh.
"""

import gc
import json
import math
import random
import statistics
import sys
import time
import tracemalloc
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import side_by_side as bench
from ldlm_monitor.base import names
from ldlm_monitor.base.points import Point, make_labels
from ldlm_monitor.judge.core.packaged_rules import packaged_rules
from ldlm_promrules.alerting import AlertStates, load_rules
from ldlm_promrules.promql import Evaluator, parse
from ldlm_promrules.query_answers import over
from ldlm_promrules.series.series_store import SeriesStore
from ldlm_promrules.series.store_view import StoreView

INTERVAL = 5.0
TARGET_MILLISECONDS = 10.0
TARGET_BYTES = 24.0
TARGET_RANGE_SECONDS = 1.0
RANGES = ("ldlm_train_loss", "rate(ldlm_train_loss[5m])", "sum(rate(ldlm_train_loss[5m]))")
WINDOW_SLOTS = 60  # of five minutes
RANKS = 8
EVENTS = ("nccl_collective_timeout", "nccl_async_error", "cuda_oom", "slurm_cancelled")
OF_A_RUN = ("throughput_ratio", "throughput_drop_ratio", "throughput_variation_ratio")
OF_A_RANK = (
    *("loss_zscore", "loss_spike_ratio", "loss_peak_ratio", "loss_rise_ratio", "loss_rise_zscore"),
    *("loss_trend_ratio", "loss_trend_zscore", "loss_slope_ratio", "loss_constant_ratio"),
    *("grad_norm_zscore", "grad_norm_ratio", "memory_growth_ratio"),
    *("rank_lag_steps", "rank_slowdown_ratio"),
)
STATES = names.RUN_STATES


@dataclass(frozen=True, slots=True)
class Measured:
    """CPU seconds of each evaluation and of each scrape; alert rules; series that there were."""

    evaluations: Sequence[float]
    scrapes: Sequence[float]
    alerts: int
    series: int


def scrape(runs: int, slot: int, rng: random.Random) -> Iterator[list[Point]]:
    """The points of each run at a slot of the grid; about 198 series a run."""
    for number in range(runs):
        run = f"train_{number:03d}"
        yield [*_of_run(run, slot, rng), *_of_ranks(run, slot, rng)]


def _of_run(run: str, slot: int, rng: random.Random) -> Iterator[Point]:
    def point(name: str, value: float, **labels: str) -> Point:
        return Point(name, make_labels(run=run, **labels), value)

    at = slot * INTERVAL
    yield point("ldlm_train_last_progress_timestamp_seconds", at - rng.random())
    yield point("ldlm_train_stall_limit_seconds", 60 + rng.random())
    yield point("ldlm_train_learning_rate", 1e-4 * rng.random())
    for state in STATES:
        yield point("ldlm_run_state", float(state == "running"), state=state)
    for gauge in OF_A_RUN:
        yield point(names.DETECT_PREFIX + gauge, 0.9 + rng.random() / 5)
    for kind in EVENTS:
        value = float(slot // 100)
        yield point("ldlm_events_total", value, kind=kind, severity="error")


def _of_ranks(run: str, slot: int, rng: random.Random) -> Iterator[Point]:
    for rank in map(str, range(RANKS)):

        def point(name: str, value: float, rank: str = rank, **labels: str) -> Point:
            return Point(name, make_labels(run=run, rank=rank, **labels), value)

        loss = 2 * math.exp(-slot / 1000) + rng.random()
        yield point("ldlm_train_loss", loss)
        yield point("ldlm_train_grad_norm", 1 + rng.random())
        yield point("ldlm_train_step", float(slot))
        yield point("ldlm_train_step_seconds", 1 + rng.random())
        for component in ("text", "latent"):
            yield point("ldlm_train_component_loss", loss / 2, component=component)
        for quantity in ("loss", "grad_norm"):
            yield point("ldlm_train_nonfinite_total", 0.0, quantity=quantity)
        yield point("ldlm_train_memory_allocated_bytes", 1e10 + slot)
        for gauge in OF_A_RANK:
            yield point(names.DETECT_PREFIX + gauge, rng.random())


def measure(series: int, slots: int, evaluations: int) -> Measured:
    rng = random.Random(1)
    a_run = len(next(scrape(1, 0, rng)))
    runs = math.ceil(series / a_run)
    rules = load_rules(packaged_rules(), parse)
    store = SeriesStore(INTERVAL, retention=slots * INTERVAL)
    for slot in range(slots):
        store.append(scrape(runs, slot, rng), slot * INTERVAL)
    states, evaluator = AlertStates(rules), Evaluator(store)
    asked, scraped = [], []
    for slot in range(slots, slots + evaluations):
        points, at = list(scrape(runs, slot, rng)), slot * INTERVAL
        started = time.thread_time()
        store.append(points, at)
        scraped.append(time.thread_time() - started)
        started = time.thread_time()
        states.evaluate(evaluator, at, ending=lambda *_: "resolved", record=lambda *_: None)
        asked.append(time.thread_time() - started)
    if states.health:
        raise bench.MeasurementError(f"a rule failed: {states.health}")
    return Measured(asked, scraped, len(rules.alerts), runs * a_run)


def range_seconds(series: int, steps: int) -> float:
    """CPU seconds of the slowest of `RANGES` at so many steps, with its answer as text."""
    store = SeriesStore(INTERVAL, retention=math.inf)
    for slot in range(steps + WINDOW_SLOTS):
        store.append([_changing(series, slot)], slot * INTERVAL)
    end, found = store.last_scrape, []
    for text in RANGES:
        started = time.thread_time()
        begin = end - (steps - 1) * INTERVAL
        answer = over(StoreView(store, None, end), parse(text), begin, end, INTERVAL)
        json.dumps(answer)
        found.append(time.thread_time() - started)
        if len(answer["result"][0]["values"]) != steps:
            raise bench.MeasurementError(f"{text} has not a value at each step")
    return max(found)


def sample_bytes(series: int, slots: int) -> float:
    """What the store weighs, labels and all, for each sample that can be read from it."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        store = SeriesStore(INTERVAL, retention=slots * INTERVAL)
        for slot in range(2 * slots):  # twice as long as is kept: old samples must go
            store.append([_changing(series, slot)], slot * INTERVAL)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / (series * slots)


def _changing(series: int, slot: int) -> list[Point]:
    return [
        Point("ldlm_train_loss", make_labels(run="train", rank=str(rank)), slot + rank / 1000)
        for rank in range(series)
    ]


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--series", type=int, default=1000, help="how many")
    parser.add_argument("--hours", type=float, default=1.0, help="how far back they go")
    parser.add_argument("--evaluations", type=int, default=50, help="how many are timed")


def rows(args: Namespace) -> list[bench.Row]:
    slots = int(args.hours * 3600 / INTERVAL)
    found = measure(args.series, slots, args.evaluations // 10 if args.quick else args.evaluations)
    evaluation = 1000 * statistics.median(found.evaluations)
    slowest = 1000 * max(found.evaluations)
    scraping = 1000 * statistics.median(found.scrapes)
    weight = sample_bytes(args.series // 10, slots)
    steps = 100 if args.quick else 1000
    ranged = range_seconds(800, steps)
    return [
        bench.Row(
            f"{found.alerts} alert rules over {found.series:,} series",
            f"< {TARGET_MILLISECONDS:g} ms of CPU time",
            f"{evaluation:.1f} ms, {evaluation / 10 / INTERVAL:.2f} % of the {INTERVAL:g} s "
            f"interval (slowest {slowest:.1f} ms; the scrape before it {scraping:.1f} ms)",
            met=evaluation < TARGET_MILLISECONDS,
        ),
        bench.Row(
            f"a range query over 800 series x {steps:,} steps",
            f"< {TARGET_RANGE_SECONDS * steps / 1000:g} s of CPU time",
            f"{ranged:.2f} s",
            met=ranged < TARGET_RANGE_SECONDS * steps / 1000,
        ),
        bench.Row(
            "a sample in the series store",
            f"<= {TARGET_BYTES:g} bytes",
            f"{weight:.1f} bytes",
            met=weight <= TARGET_BYTES,
        ),
    ]


if __name__ == "__main__":
    flags = bench.arguments("Rules over a thousand series; memory of the series store.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
