"""How soon a key shows, and what the screen costs, on 200 runs and 1,024 ranks that write.

Half of the records are a line a step of 199 logs, half are heartbeats and steps of the 1,024 ranks
of the 200th run, a file each. The screen is opened on a terminal as a person opens it, with the
monitor behind it in the same process; keys change the page, and what counts is the time until the
new page is there. Beside it the same without a screen, so that what the screen itself costs is
known, and a screen that is attached, whose process does nothing else.
"""

import contextlib
import fcntl
import json
import multiprocessing
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
import urllib.request
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.synchronize import Event
from pathlib import Path

import side_by_side as bench
from idle import cpu_seconds

RUNS, RANKS, RATE = 200, 1024, 1000
"""Runs, ranks of the last one, records a second in all."""
TARGET_KEY, TARGET_CPU = 0.05, 15.0
"""Seconds of the 95th percentile; percent of a core."""
PATIENCE = 300.0
WINDOW = (50, 165)
PAGES = (b"3", b"pending"), (b"5", b" of all runs"), (b"6", b"Host"), (b"1", b"WHY, WHAT NOW")
"""Keys, and what only the page that they open has."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Percent of a core, records a second that were read, and two 95th percentiles in seconds.

    `key`: from a key to the page that it opens. `work`: what the process computed meanwhile, all of
    its threads together; on a machine with nothing else to do a key takes no longer than that.
    """

    cpu: float
    records: float
    key: float = 0.0
    work: float = 0.0


def line(step: int) -> str:
    return f"step: {step}/90000 loss: {2 + 3 / (1 + step):.4f} lr: 0.0003 samples_per_sec: 140.2\n"


def beat(rank: int, step: int) -> str:
    shared = {"run": "big", "rank": rank, "step": step, "time": time.time()}
    kind = {"type": "step", "loss": 2 + 3 / (1 + step)} if rank == 0 else {
        "type": "heartbeat", "host": f"node{rank // 8}", "pid": 100 + rank, "phase": "forward"
    }  # fmt: skip
    return json.dumps({**kind, **shared}) + "\n"


def grow(folder: Path, logs: int, ranks: int, rate: float, stop: Event) -> None:
    """Write to all files in turn, in parts of a tenth of a second."""
    half = rate / 2
    texts = [(folder / f"seed{number:03}.log").open("a") for number in range(logs)]
    rows = [(folder / f"big/health_rank{rank}.jsonl").open("a") for rank in range(ranks)]
    started, done = time.monotonic(), 0
    while not stop.wait(0.1):
        due = int((time.monotonic() - started) * half)
        for number in range(done, due):
            texts[number % logs].write(line(number // logs + 2))
            rows[number % ranks].write(beat(number % ranks, number // ranks + 2))
            texts[number % logs].flush()
            rows[number % ranks].flush()
        done = due


def prepare(folder: Path, logs: int, ranks: int) -> None:
    (folder / "big").mkdir()
    for number in range(logs):
        (folder / f"seed{number:03}.log").write_text(line(1))
    for rank in range(ranks):
        (folder / f"big/health_rank{rank}.jsonl").write_text(beat(rank, 1))


class Opened:
    """A program on a terminal of its own."""

    def __init__(self, folder: Path, *argv: str) -> None:
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            own = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "XDG_STATE_HOME": str(folder)}
            os.execve(argv[0], argv, {**os.environ, **own})
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *WINDOW, 0, 0))

    def until(self, word: bytes, patience: float = PATIENCE) -> float:
        """The seconds until it has drawn that."""
        started, shown = time.perf_counter(), b""
        while word not in shown:
            if time.perf_counter() - started > patience:
                raise bench.MeasurementError(f"{word.decode()!r} never stood on the screen")
            if select.select([self._terminal], [], [], 0.01)[0]:
                shown += os.read(self._terminal, 65536)
        return time.perf_counter() - started

    def read_for(self, seconds: float) -> None:
        """Take what it draws, as a terminal does."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self._terminal], [], [], left)[0]:
                os.read(self._terminal, 65536)

    def key(self, key: bytes, word: bytes) -> float:
        """The seconds from a key to what it opens."""
        os.write(self._terminal, key)
        return self.until(word)

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._terminal)


def computed(process: int) -> float:
    """Seconds on a core of all threads, to the nanosecond: proc(5), schedstat."""
    found = 0
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has ended
            found += int((task / "schedstat").read_text().split()[0])
    return found / 1e9


def records(port: int) -> float:
    """How many records the monitor has read, by the bytes that its own metrics count."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    read = sum(float(each.rsplit(" ", 1)[1]) for each in lines
               if each.startswith("ldlm_monitor_bytes_total"))  # fmt: skip
    return read / ((len(line(500)) + len(beat(500, 50))) / 2)


def settled(port: int, least: int) -> None:
    """Return once the monitor has read what was there before."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            if records(port) >= least:
                return
        except OSError:  # it does not answer yet
            pass
        time.sleep(0.5)
    raise bench.MeasurementError("the logs were never read")


def measure(opened: Opened, of: int, port: int, keys: int, seconds: float) -> Busy:
    """What process `of` costs while keys are pressed, or for so many seconds without keys."""
    before, read, started = cpu_seconds(of), records(port), time.monotonic()
    waited, worked = [], []
    for index in range(keys):
        at = computed(of)
        waited.append(opened.key(*PAGES[index % len(PAGES)]))
        worked.append(computed(of) - at)
        opened.read_for(0.4)
    opened.read_for(0 if keys else seconds)
    took = time.monotonic() - started
    share = 100 * (cpu_seconds(of) - before) / took
    slow = [bench.percentile(each, 0.95) if each else 0.0 for each in (waited, worked)]
    return Busy(share, (records(port) - read) / took, *slow)


def trial(command: str, part: int, keys: int, seconds: float) -> tuple[Busy, Busy, Busy]:
    """Without a screen, with one, and an attached one's own process."""
    logs, ranks, rate = (RUNS - 1) // part, RANKS // part, RATE / part
    with tempfile.TemporaryDirectory(prefix="busy-screen-") as name:
        folder = Path(name)
        prepare(folder, logs, ranks)
        stop = multiprocessing.Event()
        growing = multiprocessing.Process(target=grow, args=(folder, logs, ranks, rate, stop))
        growing.start()
        try:
            port = bench.free_port()
            files = (command, "*.log", "big/*.jsonl", "--listen", f"127.0.0.1:{port}")
            daemon = Opened(folder, *files, "--headless")
            settled(port, (logs + ranks) // 2)
            daemon.read_for(5)
            alone = measure(daemon, daemon.pid, port, 0, seconds)
            attached = Opened(folder, command, "attach", f"http://127.0.0.1:{port}")
            attached.until(b"WHY, WHAT NOW")
            attached.read_for(2)
            attached.key(b"\x1b", b"")
            attached.read_for(1)
            apart = measure(attached, attached.pid, port, keys, seconds)
            attached.close()
            daemon.close()
            shutil.rmtree(folder / "ldlm-monitor")
            screen = Opened(folder, *files)
            screen.until(b"WHY, WHAT NOW")
            settled(port, (logs + ranks) // 2)
            screen.read_for(5)
            whole = measure(screen, screen.pid, port, keys, seconds)
            screen.close()
        finally:
            stop.set()
            growing.join()
    return alone, whole, apart


def quietest(found: Sequence[Busy]) -> Busy:
    """The least of each figure: what else the machine does can only add to them."""
    best = min(found, key=lambda each: each.cpu)
    least = {name: min(getattr(each, name) for each in found) for name in ("key", "work")}
    return replace(best, **least)


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=40, help="keys pressed, two a second")
    parser.add_argument("--tries", type=int, default=3, help="the quietest counts")


def rows(args: Namespace) -> list[bench.Row]:
    part = 10 if args.quick else 1
    tries = [
        trial(bench.monitor(args.command), part, args.keys, args.keys / 2)
        for _ in range(args.tries)
    ]
    alone, whole, apart = (quietest(each) for each in zip(*tries, strict=True))
    what = f"{RUNS // part} runs, {RANKS // part} ranks, {RATE // part} records/s"
    read = statistics.median(each[1].records for each in tries)
    return [
        bench.Row(
            f"{what}: a key, with the monitor in the same process",
            f"p95 < {TARGET_KEY * 1000:.0f} ms",
            f"{whole.key * 1000:.0f} ms, {whole.work * 1000:.0f} ms of CPU time "
            f"(attached {apart.key * 1000:.0f} ms, {apart.work * 1000:.0f} ms)",
            met=whole.key < TARGET_KEY,
        ),
        bench.Row(
            f"{what}: the screen's share of a core",
            f"< {TARGET_CPU:.0f} %",
            f"{apart.cpu:.1f} % attached; monitor and screen {whole.cpu:.1f} %, the monitor alone "
            f"{alone.cpu:.1f} %; {read:.0f} records/s read",
            met=apart.cpu < TARGET_CPU,
        ),
    ]


if __name__ == "__main__":
    flags = bench.arguments("Keys and cost of a busy screen.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
