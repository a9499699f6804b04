"""How soon the screen is there on a log of 1 GB, and the page of a run of 1,000,000 steps.

The screen is opened on a terminal as a person opens it; what counts is when its first picture
was written there, and what CPU time that took. The page is opened in the same process by its
key, on what the real core made of the rows, until its chart is drawn.
"""

import asyncio
import fcntl
import math
import os
import pty
import select
import shutil
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

import side_by_side as bench

TARGET_PICTURE = 0.5
TARGET_PAGE = 0.2
LOG_BYTES = 1_000_000_000
STEPS = 1_000_000
PATIENCE = 300.0
WINDOW = (36, 120)
FIRST, READ = b"Overview", b"grad norm"
CHART = ("✕", "grad norm")
"""The mark of the NaN, and that it stands on the page of the run."""
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(process: int) -> float:
    """User and system time, from /proc/PID/stat (proc(5), fields 14 and 15)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def write_log(path: Path, size: int) -> None:
    """A line a step until there are so many bytes."""
    with path.open("w") as file:
        step = 0
        while file.tell() < size:
            file.writelines(
                f"2026-11-21 08:00:00 step: {at}/9000000 loss: {2 + math.sin(at / 100):.4f} "
                f"lr: 0.0003 grad_norm: 0.9 samples_per_sec: 140.2\n"
                for at in range(step, step + 10_000)
            )
            step += 10_000


def write_rows(path: Path, steps: int) -> None:
    """A row a step, a hundred a second, with one NaN that must be seen."""
    with path.open("w") as file:
        for step in range(steps):
            loss = "NaN" if step == steps // 2 else f"{2 + 3 / (1 + step / 1000):.5f}"
            file.write(
                f'{{"step": {step}, "time": {1.7e9 + step / 100}, "loss": {loss}, "lr": 0.0003}}\n'
            )


def first_picture(program: str, folder: Path, log: str) -> tuple[float, float, float]:
    """Seconds and CPU seconds to the first picture, and seconds until the log was read."""
    started = time.perf_counter()
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        environment["XDG_STATE_HOME"] = str(folder / "state")
        os.execve(program, [program, log, "--listen", "127.0.0.1:0"], environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *WINDOW, 0, 0))
    try:
        first = _until(terminal, FIRST, started)
        spent = cpu_seconds(process)
        return first, spent, _until(terminal, READ, started)
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(terminal)
        shutil.rmtree(folder / "state", ignore_errors=True)


def _until(terminal: int, word: bytes, started: float) -> float:
    shown = b""
    while word not in shown:
        if time.perf_counter() - started > PATIENCE:
            raise bench.MeasurementError(f"{word.decode()!r} never stood on the screen")
        if select.select([terminal], [], [], 0.01)[0]:
            shown += os.read(terminal, 65536)
    return time.perf_counter() - started


def opened_page(folder: Path, rows: str, repeats: int) -> list[tuple[float, float]]:
    """Seconds and CPU seconds from the key to the chart, each time of a new screen."""
    from ldlm_monitor.finished.playback.log_replay import Replay
    from ldlm_monitor.screen.app import MonitorApp
    from ldlm_monitor.service.config import Settings
    from ldlm_monitor.service.daemon.local_source import LocalSource
    from ldlm_monitor.service.notify.silences import Silences

    replay = Replay(Settings(files=(str(folder / rows),)))
    for _ in replay.transitions():
        pass
    snapshot = replay.snapshot()
    twice = snapshot.model_copy(
        update={"runs": (*snapshot.runs, snapshot.runs[0].model_copy(update={"name": "~other"}))}
    )
    silences = Silences(folder / "silences.sqlite")
    source = LocalSource(lambda: twice, silences, rows)
    taken = []

    async def drive() -> None:
        app = MonitorApp(source, clock=lambda: snapshot.at, ascii_only=False)
        async with app.run_test(size=WINDOW[::-1]) as pilot:
            await app.workers.wait_for_complete()
            await pilot.pause()
            started, before = time.perf_counter(), time.process_time()
            await pilot.press("2")
            while not _holds(_text(app), *CHART):
                if time.perf_counter() - started > PATIENCE:
                    raise bench.MeasurementError("the chart was never drawn")
                await asyncio.sleep(0.002)
            taken.append((time.perf_counter() - started, time.process_time() - before))

    for _ in range(repeats):
        asyncio.run(drive())
    silences.close()
    return taken


def _holds(text: str, *words: str) -> bool:
    return all(word in text for word in words)


def _text(app: object) -> str:
    strips = app.screen._compositor.render_strips(app.size)  # type: ignore[attr-defined]
    return "\n".join(strip.text for strip in strips)


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=5, help="the median counts")


def rows(args: Namespace) -> list[bench.Row]:
    part = 10 if args.quick else 1
    program = bench.monitor(args.command)
    with tempfile.TemporaryDirectory(prefix="first-picture-") as name:
        folder = Path(name)
        write_log(folder / "big.log", LOG_BYTES // part)
        found = [first_picture(program, folder, "big.log") for _ in range(args.repeats)]
        first, spent, read = (statistics.median(column) for column in zip(*found, strict=True))
        (folder / "big.log").unlink()
        write_rows(folder / "rows.jsonl", STEPS // part)
        opened = opened_page(folder, "rows.jsonl", args.repeats)
        page, page_cpu = (statistics.median(column) for column in zip(*opened, strict=True))
    return [
        bench.Row(
            f"first picture on a log of {LOG_BYTES // part // 1_000_000} MB",
            f"< {TARGET_PICTURE:g} s",
            f"{first:.2f} s, {spent:.2f} s of CPU time; what is read of it is there "
            f"after {read:.1f} s",
            met=first < TARGET_PICTURE,
        ),
        bench.Row(
            f"page of a run of {STEPS // part:,} steps",
            f"< {TARGET_PAGE:g} s",
            f"{page * 1000:.0f} ms, {page_cpu * 1000:.0f} ms of CPU time",
            met=page < TARGET_PAGE,
        ),
    ]


if __name__ == "__main__":
    flags = bench.arguments("The first picture of the screen.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
