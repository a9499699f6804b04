"""How long a monitor of many logs needs until it is ready, and until it shows their newest lines.

Beside it, in turn, mtail reads the same logs once. Each log is a run of its own with 30 bars and
its last step minutes ago, so that all runs are judged.
"""

import json
import os
import sys
import tempfile
import time
import urllib.error
import urllib.request
from argparse import ArgumentParser, Namespace
from pathlib import Path

import side_by_side as bench
from bars_catch_up import PROGRAM

READY_TARGET, SHOWN_TARGET = 8.0, 2.0
"""Seconds for 1,000 logs."""
LOGS, BARS = 1000, 30


def write_logs(folder: Path, count: int) -> int:
    total, last_write = 0, time.time() - 300
    for run in bench.run_names(count):
        log = folder / f"{run}_node0.log"
        bench.append(log, bench.banner(run) + bench.bars(BARS))
        os.utime(log, (last_write, last_write))
        total += log.stat().st_size
    return total


def shown(url: str) -> int:
    """How many runs the API lists; 0 while it does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return len(json.load(answer)["runs"])
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return 0


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def measure(command: str, folder: Path, count: int) -> tuple[float, float]:
    """Seconds until most runs are shown by their newest lines, and until all is judged."""
    started, seen = time.monotonic(), 0.0
    with bench.running_daemon(command, folder) as daemon:
        base = daemon.metrics_url.removesuffix("/metrics")
        while not answers(f"{base}/-/ready"):
            if not seen and shown(f"{base}/api/v1/runs") > count // 2:
                seen = time.monotonic() - started
            if daemon.ended_within(0.25):  # each look at a thousand runs costs the monitor time
                raise bench.MeasurementError(f"it ended with {daemon.process.returncode}")
        ready = time.monotonic() - started
        if (found := shown(f"{base}/api/v1/runs")) != count:
            raise bench.MeasurementError(f"{found} of {count} runs are shown")
    return seen or ready, ready


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--logs", type=int, default=LOGS, help="how many logs")


def rows(args: Namespace) -> list[bench.Row]:
    count = args.logs // (10 if args.quick else 1)
    mtail = bench.debian("mtail", "mtail")
    with tempfile.TemporaryDirectory(prefix="ready-") as name:
        folder, programs = Path(name) / "logs", Path(name) / "programs"
        folder.mkdir()
        programs.mkdir()
        (programs / "train.mtail").write_text(PROGRAM)
        size = write_logs(folder, count) / 1e6
        argv = [mtail, "-one_shot", "-progs", str(programs), "-logs", str(folder / "*.log")]
        theirs = bench.timed(argv, folder)
        seen, ready = measure(args.command, folder, count)
    is_whole = count == LOGS
    return [
        bench.Row(
            f"{count:,} logs ({size:.0f} MB): their newest lines are shown",
            f"< {SHOWN_TARGET:g} s",
            f"{seen:.1f} s",
            met=seen < SHOWN_TARGET if is_whole else None,
        ),
        bench.Row(
            f"{count:,} logs: all is judged; mtail reads them",
            f"< {READY_TARGET:g} s",
            f"{ready:.1f} s",
            f"{theirs.wall:.1f} s",
            f"{theirs.wall / ready:.2f} x",
            ready < READY_TARGET if is_whole else None,
        ),
    ]


if __name__ == "__main__":
    flags = bench.arguments("How long many logs need until they are ready.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
