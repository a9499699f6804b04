"""False alarms of the rules over healthy trainings, and time to detect faults.

Logs of healthy trainings are written (`healthy_training.py`) and replayed with the packaged
rules: every alert of severity warning or above that fires is false. So is one in a real log in
which nothing went wrong, where a corpus of them is given. Then each fault of
`training_faults.py` is put into such a training: how many steps until the alert for it fires?
"""

import json
import os
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import side_by_side as bench
from healthy_training import Training, Written, trainings, write
from ldlm_monitor.base.alert import Transition
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.judge.core.packaged_rules import packaged_rules
from ldlm_monitor.service.config import Settings
from ldlm_promrules.alerting import load_rules
from ldlm_promrules.promql import parse
from training_faults import BEGINS, CASES, Case

STEPS = 3_000_000
PER_MILLION = 1_000_000
LOUD = frozenset({"warning", "error", "critical"})


@dataclass(slots=True)
class Tally:
    """Steps that were replayed, and the alerts that fired, by name."""

    steps: int = 0
    fired: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Tally") -> None:
        self.steps += other.steps
        self.fired += other.fired

    def __str__(self) -> str:
        fired = ", ".join(f"{name} {count}" for name, count in self.fired.most_common())
        return fired or "no alert"


def fired(settings: Settings) -> tuple[list[Transition], int]:
    """The loud alerts that fire in a replay, and how many samples it read."""
    replay = Replay(settings)
    found = [
        each
        for each in replay.transitions()
        if each.state == "firing" and each.labels.get("severity") in LOUD
    ]
    return found, replay.snapshot().monitor.records.get("sample", 0)


def transitions_of(written: Written) -> list[Transition]:
    """The loud alerts of a written training, whose files are one run."""
    found, samples = fired(
        Settings(files=(str(written.folder),), run=written.training.name, companions=False)
    )
    if samples < len(written.times) // written.training.log_every:
        raise bench.MeasurementError(f"{written.training.name}: only {samples} samples were read")
    return found


def healthy(training: Training) -> tuple[str, Tally]:
    with tempfile.TemporaryDirectory(prefix="false-alarms-") as name:
        written = write(training, Path(name) / "logs")
        alarms = transitions_of(written)
        return training.name, Tally(len(written.times), Counter(each.alert for each in alarms))


def real(corpus: Path) -> Iterator[tuple[str, Tally]]:
    """Real logs of a corpus in which, by its indexes, nothing went wrong."""
    for log in _healthy_logs(corpus):
        found, samples = fired(Settings(files=(str(log),), companions=log.is_dir()))
        yield log.name, Tally(samples, Counter(each.alert for each in found))


def _healthy_logs(corpus: Path) -> Iterator[Path]:
    for entry in json.loads((corpus / "public/index.json").read_text()):
        events = entry["truth"]["events"]
        if all(event["severity"] == "benign" for event in events):
            yield corpus / "public" / entry["file"]
    for run in json.loads((corpus / "upstream/index.json").read_text()):
        if "healthy" in run:
            yield from (corpus / "upstream" / run / "train_logs").glob("*.log")


def detect(case: Case) -> tuple[str, str, int | None, Counter[str]]:
    """Alert and fault; steps from its begin to the alert, None: never; what else fired since."""
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        written = write(case.training, Path(name) / "logs", case.fault, BEGINS)
        began = written.times[BEGINS - 1]
        since = [
            each for each in transitions_of(written) if each.time is None or each.time >= began
        ]
        others = Counter(each.alert for each in since if each.alert != case.alert)
        times = [each.time for each in since if each.alert == case.alert]
        if not times:
            return case.alert, case.what, None, others
        steps = bisect_right(written.times, times[0] or 0.0) - BEGINS
        return case.alert, case.what, max(steps, 0), others


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=STEPS, help="healthy steps, about")
    parser.add_argument("--seed", type=int, default=1, help="draws the trainings")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at once")
    parser.add_argument("--corpus", type=Path, default=None, help="real logs with their truth")


def rows(args: Namespace) -> list[bench.Row]:
    steps = args.steps // 10 if args.quick else args.steps
    return [*_false_alarms(args, steps), *_detections(args)]


def _false_alarms(args: Namespace, steps: int) -> list[bench.Row]:
    by_name: dict[str, Tally] = {}
    if args.corpus is not None:
        for _, tally in real(args.corpus):
            by_name.setdefault("real healthy logs", Tally()).add(tally)
    with ProcessPoolExecutor(args.jobs) as pool:
        for name, tally in pool.map(healthy, trainings(steps, args.seed)):
            by_name.setdefault(name, Tally()).add(tally)
    total = Tally()
    found = []
    for name, tally in by_name.items():
        total.add(tally)
        found.append(bench.Row(f"{name}: {tally.steps:,} healthy steps", "", str(tally)))
    rate = PER_MILLION * total.fired.total() / max(total.steps, 1)
    summary = bench.Row(
        f"false alerts over {total.steps:,} healthy steps",
        "< 1 per 1,000,000",
        f"{rate:.2f} per 1,000,000 ({total})",
        met=rate < 1.0,
    )
    return [summary, *found]


def _detections(args: Namespace) -> list[bench.Row]:
    named = {rule.name for rule in load_rules(packaged_rules(), parse).alerts}
    there = [case for case in CASES if case.alert in named]
    found = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for alert, what, steps, others in pool.map(detect, there):
            steps_to = "never" if steps is None else f"after {steps:,} steps"
            more = f"; also {', '.join(sorted(others))}" if others else ""
            found.append(
                bench.Row(f"{alert}: {what}", "fires", steps_to + more, met=steps is not None)
            )
    missing = [case.alert for case in CASES if case.alert not in named]
    if missing:
        found.append(bench.Row("faults without a rule yet", "", ", ".join(missing)))
    return found


if __name__ == "__main__":
    flags = bench.arguments("False alerts over healthy trainings, and faults found.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
