"""What the daemon costs while nothing is written: share of one core, and resident memory.

Each followed log is a run of its own that was interrupted hours ago in the middle of its training,
so that all runs are stalled and their alerts fire: the most that a quiet folder can ask for.
"""

import os
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path

import side_by_side as bench

CPU_TARGETS = {200: 1.0, 1000: 3.0}
"""Percent of one core, by the number of files."""
MEMORY_TARGETS = {200: 120.0}
"""MB (10**6 bytes) resident, by the number of files."""
QUIET_SECONDS = 2 * 3600.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Idle:
    """`ready` seconds until all was read; percent of one core; MB resident, now and at most."""

    ready: float
    cpu: float
    resident: float
    peak: float


def cpu_seconds(process: int) -> float:
    """User and system time of a process, from /proc/PID/stat (proc(5), fields 14 and 15)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def megabytes(process: int, name: str) -> float:
    """`VmRSS` or `VmHWM` of /proc/PID/status, which are in KiB."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise bench.MeasurementError(f"the process has no {name}")


def write_logs(folder: Path, count: int) -> int:
    """Logs that nobody writes to any more; their bytes in all."""
    last_write = time.time() - QUIET_SECONDS
    total = 0
    for run in bench.run_names(count):
        log = folder / f"{run}_node0.log"
        bench.append(log, bench.banner(run) + bench.bars())
        os.utime(log, (last_write, last_write))
        total += log.stat().st_size
    return total


def measure(command: str, files: int, settle: float, seconds: float) -> Idle:
    with tempfile.TemporaryDirectory(prefix="idle-") as name:
        folder = Path(name)
        total = write_logs(folder, files)
        with bench.running_daemon(command, folder) as daemon:
            ready = daemon.wait_for_bytes(total, "reading the logs")
            process = daemon.process.pid
            ended = daemon.ended_within(settle)
            before, started = cpu_seconds(process), time.monotonic()
            if ended or daemon.ended_within(seconds):
                raise bench.MeasurementError(f"it ended with {daemon.process.returncode}")
            spent = cpu_seconds(process) - before
            share = 100 * spent / (time.monotonic() - started)
            resident, peak = (megabytes(process, name) for name in ("VmRSS", "VmHWM"))
    return Idle(ready, share, resident, peak)


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--files", type=int, nargs="+", default=[200, 1000], help="how many logs")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to look")
    parser.add_argument("--settle", type=float, default=5.0, help="seconds to wait before")


def rows(args: Namespace) -> list[bench.Row]:
    found = []
    for files in args.files:
        count = files // 10 if args.quick else files
        idle = measure(args.command, count, args.settle, args.seconds)
        targets = []
        met = []
        if limit := CPU_TARGETS.get(files):
            targets.append(f"< {limit:g} % of a core")
            met.append(idle.cpu < limit)
        if limit := MEMORY_TARGETS.get(files):
            targets.append(f"< {limit:g} MB")
            met.append(idle.resident < limit)
        ours = (
            f"{idle.cpu:.2f} %, {idle.resident:.0f} MB (peak {idle.peak:.0f}), "
            f"ready in {idle.ready:.1f} s"
        )
        what = f"idle, {count} logs of as many runs"
        found.append(bench.Row(what, ", ".join(targets), ours, met=all(met) if met else None))
    return found


if __name__ == "__main__":
    flags = bench.arguments("CPU and memory of an idle daemon.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
