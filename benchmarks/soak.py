"""Whether a monitor of busy logs grows: memory, descriptors, state and /metrics over time.

Each log gets `--rate` lines a second, is rotated every minute as logrotate does it (three old files
are kept), and has an error of its own every two minutes; every minute a new run begins and another
ends for good. What is looked at is the second half: by then windows and curves are full. Series of
ended runs are kept for a minute, five such runs are shown, and samples are kept for ten minutes, as
rules look back five at most, so that all that ends is gone within the time.
"""

import os
import re
import sys
import tempfile
import time
import urllib.request
from argparse import ArgumentParser, Namespace
from dataclasses import astuple, dataclass
from itertools import count
from pathlib import Path

import side_by_side as bench
from idle import cpu_seconds, megabytes

GROWTH = 1.1
"""Most growth of each figure over the second half: noise of an allocator, and no more."""
ROOT = Path(__file__).resolve().parents[1]
ROTATED_SECONDS, KEPT = 60.0, 3
LOOK_SECONDS = 5.0
ENDED_KEPT = 5
SETTINGS = "rules = ['rules.yml']\nend_series_after_seconds = 60\nretention_seconds = 600\n"
SETTINGS += f"ended_runs_kept = {ENDED_KEPT}\n"
LONG_RANGE = re.compile(r"\[[1-9]\dm\]")


@dataclass(frozen=True, slots=True)
class Size:
    """MB resident, open descriptors, MB of state, MB of a scrape."""

    resident: float
    descriptors: float
    state: float
    scrape: float


class Writer:
    """Writes the logs of `runs` runs at a time; each has a number, and new ones go on counting."""

    def __init__(self, folder: Path, runs: int, rate: int) -> None:
        self._folder = folder
        self._rate = rate
        self._numbers = count()
        self._active = [next(self._numbers) for _ in range(runs)]
        self._step = 0

    def write_second(self, second: int) -> None:
        for place, run in enumerate(self._active):
            log = self._folder / f"job{run}.log"
            if second and (second + place) % int(ROTATED_SECONDS) == 0:
                self._rotate(log)
            first = second * self._rate
            lines = [
                f"step {step} loss {2 + step * 37 % 991 / 1000:.3f} grad_norm 1.0 lr 1e-4\n"
                for step in range(first, first + self._rate)
            ]
            if (second + place) % 120 == 0:
                lines.append(f"RuntimeError: bad batch {second} of {run}\n")
            bench.append(log, "".join(lines))
        if second % 60 == 59:
            self._active.append(next(self._numbers))
            ended = self._active.pop(0)
            bench.append(self._folder / f"job{ended}.log", "Training complete.\n")

    def _rotate(self, log: Path) -> None:
        for number in range(KEPT, 0, -1):
            old = log.with_name(f"{log.name}.{number}")
            if old.exists():
                old.rename(old.with_name(f"{log.name}.{number + 1}"))
        if log.exists():
            log.rename(log.with_name(f"{log.name}.1"))
        log.with_name(f"{log.name}.{KEPT + 1}").unlink(missing_ok=True)


def look(daemon: bench.Daemon, folder: Path) -> Size:
    process = daemon.process.pid
    with urllib.request.urlopen(daemon.metrics_url, timeout=60) as answer:
        scrape = len(answer.read())
    state = sum(file.stat().st_size for file in (folder / "state").rglob("*") if file.is_file())
    descriptors = len(os.listdir(f"/proc/{process}/fd"))
    return Size(megabytes(process, "VmRSS"), descriptors, state / 1e6, scrape / 1e6)


def measure(args: Namespace, seconds: int, folder: Path) -> tuple[list[Size], float]:
    """A size every `LOOK_SECONDS`, and the share of a core."""
    writer, sizes = Writer(folder, args.runs, args.rate), list[Size]()
    writer.write_second(0)
    rules = (ROOT / "rules/default.yml").read_text(encoding="utf-8")
    (folder / "rules.yml").write_text(LONG_RANGE.sub("[5m]", rules), encoding="utf-8")
    (folder / "ldlm-monitor.toml").write_text(SETTINGS)
    with bench.running_daemon(args.command, folder) as daemon:
        if daemon.ended_within(10):
            raise bench.MeasurementError(f"it ended with {daemon.process.returncode}")
        before, started = cpu_seconds(daemon.process.pid), time.monotonic()
        for second in range(1, seconds):
            writer.write_second(second)
            if second % int(LOOK_SECONDS) == 0:
                sizes.append(look(daemon, folder))
            if daemon.ended_within(max(started + second - time.monotonic(), 0.0)):
                raise bench.MeasurementError(f"it ended with {daemon.process.returncode}")
        spent = cpu_seconds(daemon.process.pid) - before
    return sizes, spent / (time.monotonic() - started)


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=100, help="runs that are written at a time")
    parser.add_argument("--rate", type=int, default=10, help="lines a second of each")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long")
    parser.add_argument("--curve", action="store_true", help="print every size, too")


def rows(args: Namespace) -> list[bench.Row]:
    seconds = int(60 * args.minutes / (10 if args.quick else 1))
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        sizes, share = measure(args, seconds, Path(name))
    if args.curve:
        for at, size in enumerate(sizes, 1):
            shown = "  ".join(f"{each:8.2f}" for each in astuple(size))
            print(f"{at * LOOK_SECONDS:6.0f} s  {shown}", file=sys.stderr)
    half, end = sizes[len(sizes) // 2], sizes[-1]
    an_hour = (end.state - half.state) * 3600 / (seconds / 2)
    what = f"{args.runs} runs, {args.rate} lines/s each, {seconds / 60:.0f} minutes"
    found = []
    for title, unit, before, after in (
        ("resident", "MB", half.resident, end.resident),
        ("descriptors", "", half.descriptors, end.descriptors),
        ("a scrape", "MB", half.scrape, end.scrape),
    ):
        grown = after / before
        shown = f"{before:.1f} {unit} -> {after:.1f} {unit}"
        found.append(
            bench.Row(
                f"{what}: {title}, second half",
                f"<= {GROWTH:g} x",
                shown,
                "",
                f"{grown:.2f} x",
                grown <= GROWTH,
            )
        )
    state = f"{end.state:.1f} MB, {an_hour:.1f} MB an hour; {100 * share:.0f} % of a core"
    return [*found, bench.Row(f"{what}: state, until its rows are thinned out", "", state)]


if __name__ == "__main__":
    flags = bench.arguments("Whether a monitor of busy logs grows.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
