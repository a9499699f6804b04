"""The account of time beside Google's calculator of goodput, on the same events.

Scripted runs of some hundred steps, with kills, resumes, starts and evaluations, become a log for
`ldlm-monitor goodput` and calls of the recorder of `ml-goodput-measurement` (pip install it in this
environment). Its cloud logger is replaced by a list in memory; the calculator is its own. The exit
code is 1 if a run's two figures differ by more than half a point.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

START = 1_769_681_700.0  # any time in the past
TOLERANCE = 0.5  # points of goodput: issue 25 asks for as much
Happening = tuple[float, str, int]
"""When, what (`job`, `evaluation`, `evaluated`, `step` begins, `logged`, `end`), and the step."""


def happenings(seed: int, steps: int = 400) -> Iterator[Happening]:
    """What happens in a run, in order of time."""
    rng = random.Random(seed)
    at, step, safe = START, 1, 0
    pace = rng.uniform(0.5, 3.0)
    yield at, "job", 0
    at += rng.uniform(5, 40)
    while step <= steps:
        yield at, "step", step
        if rng.random() < 0.01 and step > safe + 25:
            at += rng.uniform(20, 200)  # down, after a kill within this step
            yield at, "job", 0
            at += rng.uniform(5, 40)
            safe, step = step, step - rng.randint(5, 20)
            continue
        at += pace * rng.uniform(0.9, 1.1)
        yield at, "logged", step
        if step % 50 == 0 and step < steps:  # theirs counts one after the last step as productive
            yield at + 0.01, "evaluation", step
            at += pace * rng.uniform(10, 20)
            yield at - 0.01, "evaluated", step
        step += 1
    yield at, "end", steps


def ours(events: list[Happening], folder: Path) -> float:
    """The goodput by `ldlm-monitor goodput` of the log of such a run, in percent."""
    words = {
        "job": "ldlm-monitor run: attempt 1 starts",
        "logged": "step: {}, loss: 2.5",
        "evaluation": "***** Running Evaluation *****",
        "end": "ldlm-monitor run: the command ended with exit code 0",
    }
    log = folder / "train.log"
    with log.open("w", encoding="utf-8") as lines:
        for at, what, step in events:
            if what in words:
                stamp = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
                print(f"{stamp}Z {words[what].format(step)}", file=lines)
    command = [sys.executable, "-m", "ldlm_monitor", "goodput", "--format", "json", str(log)]
    done = subprocess.run(command, capture_output=True, check=True, text=True, cwd=folder)
    return 100 * float(json.loads(done.stdout)["goodput"]["share"])


class Memory:
    """What the recorder writes and the calculator reads, in place of Google's cloud."""

    def __init__(self, job: str) -> None:
        self.job_name, self.entries = job, list[tuple[datetime, dict[str, Any]]]()

    def write_cloud_logging_entry(self, entry: dict[str, Any]) -> None:
        """Keep an entry at its own time."""
        at = next(value for key, value in entry.items() if key.endswith("_time"))
        self.entries.append((datetime.fromtimestamp(at, UTC), entry))

    def read_cloud_logging_entries(
        self,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        last_entry_info: tuple[datetime, str] | None = None,
    ) -> tuple[list[dict[str, Any]], tuple[datetime, str]]:
        """All entries, and which is the last: asked once, the calculator wants no fewer."""
        return [entry for _, entry in self.entries], (self.entries[-1][0], "last")


def theirs(events: list[Happening], folder: Path) -> float:
    """The goodput by Google's calculator, in percent."""
    from ml_goodput_measurement import goodput  # type: ignore[import-not-found]

    memory = Memory("job")
    recorder = goodput.GoodputRecorder("job", "log", logging_enabled=True, cloud_logger=memory)
    for moment, what, step in events:
        at = datetime.fromtimestamp(moment, UTC)
        if what == "job":
            recorder.record_job_start_time(at)
        elif what == "step":
            recorder.record_step_start_time(step, at)
        elif what == "evaluation":
            recorder.record_custom_badput_event_start_time(at, "evaluation")
        elif what == "evaluated":
            recorder.record_custom_badput_event_end_time(at, "evaluation")
        elif what == "end":
            recorder.record_job_end_time(at)
    calculator = goodput.GoodputCalculator("job", "log", cloud_logger=memory, cache_dir=str(folder))
    return float(calculator.get_job_goodput()[0])


def main() -> int:
    """Print a row a run; 1 if one differs by more than `TOLERANCE`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    worst = 0.0
    print("| run | resumes | ldlm-monitor | ml-goodput-measurement | difference |")
    print("| --- | --- | --- | --- | --- |")
    for seed in range(parser.parse_args().runs):
        events = [*happenings(seed)]
        resumes = sum(what == "job" for _, what, _ in events) - 1
        with tempfile.TemporaryDirectory() as name:
            mine, other = ours(events, Path(name)), theirs(events, Path(name))
        worst = max(worst, abs(mine - other))
        print(f"| {seed} | {resumes} | {mine:.2f} % | {other:.2f} % | {mine - other:+.2f} |")
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    raise SystemExit(main())
