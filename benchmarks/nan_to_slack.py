"""How long a NaN takes from the trainer's write() to the Slack request that reports it.

Starts the daemon as a user does, with its webhook pointing at an HTTP server in this process, on
one run for each try and on logs that grow all the while. Then appends a line with a NaN to one
log after the other and waits for the request that names that run and quotes that line.
"""

import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import side_by_side as bench

TARGET_SECONDS = 1.0
FINISHED_BARS = 500
WRITER = Path(__file__).with_name("growing_logs.py")


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--tries", type=int, default=100, help="how many NaNs (default 100)")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds between two")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds until one is lost")
    parser.add_argument("--busy-files", type=int, default=200, help="logs that grow meanwhile")
    parser.add_argument("--joining", type=int, default=0, help="finished logs that appear then")
    parser.add_argument("--rate", type=float, default=10.0, help="lines a second in each of them")


@contextmanager
def growing(logs: Sequence[Path], rate: float) -> Iterator[None]:
    """A process of its own writes to `logs`, so that it does not hold up the clock of this one."""
    if not logs:
        yield
        return
    command = [sys.executable, str(WRITER), str(rate), *map(str, logs)]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        yield
        if writer.poll() is not None:
            raise bench.MeasurementError(f"{WRITER.name} ended with {writer.returncode}")
    finally:
        bench.stop(writer)


def measure(args: Namespace) -> list[float]:
    """Seconds from write() to request, one for each NaN that was reported."""
    runs = bench.run_names(args.tries)
    others = bench.run_names(args.busy_files, datetime(2025, 1, 1, tzinfo=UTC))
    with tempfile.TemporaryDirectory(prefix="nan-to-slack-") as name:
        folder = Path(name)
        logs = {run: folder / f"{run}_node0.log" for run in [*runs, *others]}
        for run, log in logs.items():
            bench.append(log, bench.banner(run))
        with (
            bench.listening(bench.Slack(runs)) as slack,
            bench.running_daemon(args.command, folder, slack.url) as daemon,
        ):
            daemon.wait_for_bytes(_size(logs.values()), "reading the banners")
            for log in logs.values():
                bench.append(log, bench.bars())
            daemon.wait_for_bytes(_size(logs.values()), "reading the healthy bars")
            written = {}
            with growing([logs[run] for run in others], args.rate):
                for run in bench.run_names(args.joining, datetime(2024, 1, 1, tzinfo=UTC)):
                    text = bench.banner(run) + bench.bars(FINISHED_BARS)
                    bench.append(folder / f"{run}_node0.log", text)
                for run in runs:
                    written[run] = bench.append(logs[run], bench.NAN_LINE + "\n")
                    time.sleep(args.pause)
                slack.wait_for(args.tries, args.timeout)
            if daemon.ended_within(0):
                raise bench.MeasurementError(f"it ended with {daemon.process.returncode}")
            return [slack.arrivals[run] - written[run] for run in runs if run in slack.arrivals]


def _size(logs: Iterable[Path]) -> int:
    return sum(log.stat().st_size for log in logs)


def rows(args: Namespace) -> list[bench.Row]:
    tries = max(args.tries // 10, 10) if args.quick else args.tries
    busy = args.busy_files // 10 if args.quick else args.busy_files
    seconds = measure(Namespace(**{**vars(args), "tries": tries, "busy_files": busy}))
    p50, p99, longest = (bench.percentile(seconds, share) for share in (0.5, 0.99, 1.0))
    lost = tries - len(seconds)
    return [
        bench.Row(
            f"NaN to Slack, {tries} tries, {busy} other logs at {args.rate:g} lines/s"
            + (f", {args.joining} finished ones join" if args.joining else ""),
            f"p99 < {TARGET_SECONDS:g} s, none lost",
            f"p50 {p50:.3f} s, p99 {p99:.3f} s, max {longest:.3f} s, {lost} lost",
            met=not lost and p99 < TARGET_SECONDS,
        )
    ]


if __name__ == "__main__":
    flags = bench.arguments("Latency from a NaN in a log to Slack.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
