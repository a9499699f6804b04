"""How often the intervals of `compare` hold the truth, and how often it sees a difference.

Pairs of runs whose truth is known are made and compared: step times that remember those before
them (AR(1)), with slow steps, wild ones, a warm-up, a rhythm; and losses, step by step, or each
run by itself. Each row is one kind of run. Of so many pairs: how many get an interval; how many
intervals hold the truth; in how many pairs a difference is seen where there is none, and in how
many where there is one.
"""

from __future__ import annotations

import math
import os
import random
from argparse import ArgumentParser
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from statistics import fmean

from ldlm_monitor.finished.compare.comparison import CONFIDENCE
from ldlm_monitor.finished.compare.difference_words import LOSS, PACE, verdict
from ldlm_monitor.finished.compare.intervals import (
    Difference,
    Location,
    mean_of,
    median_of,
    of_logarithms,
    of_means,
    of_pairs,
)
from ldlm_monitor.finished.compare.sides import Side
from ldlm_monitor.finished.readings import STEPS, Column, RunReadings

PAIRS = 300
SEED = 20260129
EFFECT = 0.9
"""Step time or loss of the candidate, as a share of the baseline's, where it has changed."""
SPREAD = 0.1
"""Standard deviation of the logarithm of a step time, and of a loss relative to its mean."""
COUNTS = (40, 100, 200, 400)
MEMORIES = (0.0, 0.3, 0.6, 0.8, 0.9)
Noise = Callable[[random.Random, int, float], list[float]]
"""Logarithms of step times around 0, so many, with so strong a memory."""


def remembering(chance: random.Random, count: int, memory: float) -> list[float]:
    """Normal values of variance 1 that remember the one before them."""
    state, found = chance.gauss(0, 1), []
    for _ in range(count):
        state = memory * state + math.sqrt(1 - memory**2) * chance.gauss(0, 1)
        found.append(state)
    return found


def steady(chance: random.Random, count: int, memory: float) -> list[float]:
    """Noise alone."""
    return [SPREAD * value for value in remembering(chance, count, memory)]


def spikes(chance: random.Random, count: int, memory: float) -> list[float]:
    """Three steps of a hundred are slower, some ten times and more."""
    return [
        value + (chance.expovariate(0.4) if chance.random() < 0.03 else 0.0)
        for value in steady(chance, count, memory)
    ]


def wild(chance: random.Random, count: int, memory: float) -> list[float]:
    """Student's t with two degrees of freedom, whose variance is infinite."""
    return [
        value / math.sqrt(chance.gammavariate(1.0, 1.0)) for value in steady(chance, count, memory)
    ]


def warm_up(chance: random.Random, count: int, memory: float) -> list[float]:
    """The first steps are five times as slow, and less so with each."""
    return [
        value + 1.6 * math.exp(-step / (0.03 * count))
        for step, value in enumerate(steady(chance, count, memory))
    ]


def rhythm(chance: random.Random, count: int, memory: float) -> list[float]:
    """Each tenth step takes three times as long: it logs, or fetches data."""
    return [
        value + (1.1 if step % 10 == 9 else 0.0)
        for step, value in enumerate(steady(chance, count, memory))
    ]


KINDS: dict[str, Noise] = {
    "steady": steady,
    "spikes": spikes,
    "wild": wild,
    "warm-up": warm_up,
    "rhythm": rhythm,
}


def step_times(noise: Iterator[list[float]], truth: float) -> Difference | None:
    """Runs compared by the medians of their step times, warm-up left out."""
    locations = []
    for by in (1.0, truth):
        values = [by * math.exp(value) for value in next(noise)]
        readings = RunReadings("run")
        steps, times = array("q", range(len(values))), array("d", [math.nan] * len(values))
        readings.put(STEPS, Column(steps, times, times))
        readings.put("step_seconds", Column(steps, times, array("d", values)))
        side = Side("run", readings)
        locations.append(median_of([math.log(value) for value in side.steady("step_seconds")]))
        if not side.is_settled:
            return None
    return _between(of_logarithms, *locations)


def losses(noise: Iterator[list[float]], truth: float) -> Difference | None:
    """Runs of which each has noise of its own, by their means."""
    locations = [mean_of([by * (1 + value) for value in next(noise)]) for by in (1.0, truth)]
    return _between(of_means, *locations)


def paired_losses(noise: Iterator[list[float]], truth: float) -> Difference | None:
    """Runs that saw the same batches, step by step."""
    moved = mean_of([truth - 1 + value for value in next(noise)])
    return None if moved is None else of_pairs(moved, 1.0, CONFIDENCE)


def _between(
    how: Callable[[Location, Location, float], Difference | None],
    a: Location | None,
    b: Location | None,
) -> Difference | None:
    return None if a is None or b is None else how(a, b, CONFIDENCE)


COMPARED = {"step time": step_times, "loss": losses, "paired loss": paired_losses}


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of pair."""

    compared: str
    noise: str
    count: int
    memory: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of pairs, 0..1; `covered`: of those with an interval (`given`), NaN where none has.

    `false`: a difference is seen where there is none; `found`: where there is one.
    """

    given: float
    covered: float
    false: float
    found: float


def rates(case: Case, pairs: int) -> Rates:
    """Of so many pairs without a difference, and as many with one; the same each time."""
    chance = random.Random(f"{SEED} {case}")
    make = KINDS[case.noise]
    noise = iter(lambda: make(chance, case.count, case.memory), None)
    quantity = PACE[0] if case.compared == "step time" else LOSS
    held: list[bool] = []
    seen = {}
    for truth in (1.0, EFFECT):
        compared = (COMPARED[case.compared](noise, truth) for _ in range(pairs))
        known = [each for each in compared if each is not None]
        held += [each.low <= truth - 1 <= each.high for each in known]
        words = [verdict(quantity, each)[0] for each in known]
        seen[truth] = sum(word in ("better", "worse") for word in words) / pairs
    covered = fmean(held) if held else math.nan
    return Rates(len(held) / (2 * pairs), covered, seen[1.0], seen[EFFECT])


def cases() -> Iterator[Case]:
    """All kinds of pairs."""
    for count in COUNTS:
        for memory in MEMORIES:
            yield Case("step time", "steady", count, memory)
    for noise in ("spikes", "wild", "warm-up", "rhythm"):
        for count in (40, 100, 400):
            for memory in (0.0, 0.6, 0.8):
                yield Case("step time", noise, count, memory)
    for compared in ("loss", "paired loss"):
        for count in (40, 100, 400):
            for memory in (0.0, 0.6, 0.9):
                yield Case(compared, "steady", count, memory)


def main() -> int:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"of each kind (default {PAIRS})")
    pairs = parser.parse_args().pairs
    wanted = list(cases())
    print("| compared | noise | steps | memory | given | held | false | found |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for case, answer in zip(
            wanted, pool.map(rates, wanted, [pairs] * len(wanted)), strict=True
        ):
            shares = (answer.given, answer.covered, answer.false, answer.found)
            cells = (case.compared, case.noise, case.count, case.memory)
            row = (*map(str, cells), *(f"{100 * share:.0f} %" for share in shares))
            print(f"| {' | '.join(row)} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
