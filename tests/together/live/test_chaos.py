"""What writers, disks and kills do at random to a real daemon: no row is lost, none comes twice.

The daemon's lifetime counter of samples must reach the number of rows that were written, and must
never pass it. Before a file loses content that no other file has, its rows have been read. Jumps
of the clock are in `daemon/test_clock.py`: under libfaketime, Python's own sleep fails.
"""

import contextlib
import gzip
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.service.daemon.discovery import DOUBT_SECONDS

pytestmark = pytest.mark.live

BANNER = "#" * 1500
"""More than what a file is known by, and different for each file by its number."""
COMMIT_SECONDS = 10.0
PATIENCE = 120.0
QUIET = 2 * int(DOUBT_SECONDS + 1)
"""Equal counts in a row, half a second apart, after which nothing more is read again: a file that
may be a copy of another one, still being written, waits for so long, and is no byte behind."""
PEAK_MB = 400
ENDS = {"lf": "\n", "crlf": "\r\n", "cr": "\r", "utf-16": "\n", "bom": "\n"}
STATE_BYTES = 16 * 2**20
FULL_BYTES = 2**20


class Log:
    """A followed log: its present path, and how its rows are spelled."""

    def __init__(self, path: Path, form: str) -> None:
        self.path, self.form = path, form
        self.rows = 0  # of its present content

    def begin(self, number: int) -> None:
        self.write(f"{BANNER} {number}\n", first=True)

    def write(self, text: str, *, first: bool = False) -> None:
        encoded = text.replace("\n", ENDS[self.form]).encode(
            "utf-16-le" if self.form == "utf-16" else "utf-8"
        )
        mark = {"utf-16": b"\xff\xfe", "bom": b"\xef\xbb\xbf"}.get(self.form, b"")
        self.write_bytes(mark + encoded if first else encoded)

    def write_bytes(self, data: bytes) -> None:
        with self.path.open("ab", buffering=0) as file:
            file.write(data)


class Chaos:
    """The folder, its logs, and the daemon that follows them; `acts` is what was done so far."""

    def __init__(self, folder: Path, start: Callable[..., Any], seed: int) -> None:
        self.random = random.Random(seed)
        self.folder, self._start = folder, start
        self.rows = self.files = 0
        self.gone: list[tuple[float, int]] = []  # when content was lost, and its rows
        self.acts: list[str] = []
        for name in ("logs", "remote", "mounted", "elsewhere", "state", "full"):
            (folder / name).mkdir(exist_ok=True)
        self.logs: list[Log] = []
        self.daemon = self.start()

    def start(self) -> Any:
        arguments = [
            "logs/*",
            "mounted/*",
            "full/*.log",
            "--state-dir",
            str(self.folder / "state"),
            "--interval",
        ]
        return self._start(*arguments, "1", open_files=96).ready()

    # What is known of the rows.

    def counted(self) -> int:
        shown = self.daemon.get("/metrics")
        found = re.search(r'^ldlm_monitor_records_total\{record="sample"\} (\S+)', shown, re.M)
        assert found, shown
        return int(float(found[1]))

    def is_behind(self) -> bool:
        """Whether the daemon has bytes to read; on a busy machine no row may come for seconds."""
        return "\nldlm_monitor_behind_bytes 0" not in self.daemon.get("/metrics")

    def settle(self) -> None:
        """Return once each row that was written has been counted."""
        deadline = time.monotonic() + PATIENCE
        while (counted := self.counted()) != self.rows:
            assert counted < self.rows, f"{counted - self.rows} rows came twice: {self.acts}"
            assert time.monotonic() < deadline, f"{self.rows - counted} were lost: {self.acts}"
            threading.Event().wait(0.05)

    # What writers do.

    def some(self) -> Log:
        return self.random.choice(self.logs)

    def local(self) -> Log:
        """The mounted server is for appending and errors: a link there would be another file."""
        return self.random.choice([log for log in self.logs if log.path.parent.name == "logs"])

    def append(self) -> None:
        self.write_rows(self.some(), self.random.randrange(1, 200))

    def write_rows(self, log: Log, count: int) -> None:
        first, self.rows = self.rows + 1, self.rows + count
        log.rows += count
        rows = [self.row(row) for row in range(first, self.rows + 1)]
        for text in rows if count < 100 else ["".join(rows)]:
            log.write(text)

    @staticmethod
    def row(number: int) -> str:
        return f"iter {number}: loss 2.5, time 100.00ms, mfu 1.00%\n"

    def lose(self, log: Log) -> None:
        """Settle before the present content of a log can be read no more."""
        self.settle()
        self.gone.append((time.monotonic(), log.rows))
        log.rows = 0

    def new_file(self) -> None:
        self.files += 1
        form = self.random.choice(list(ENDS))
        folder = self.random.choice(["logs", "logs", "remote"])
        log = Log(self.folder / folder / f"train{self.files}.log", form)
        log.begin(self.files)
        self.logs.append(log)
        self.append()

    def rotate(self) -> None:
        """Under a number or a date, which the pattern matches."""
        log = self.local()
        self.files += 1
        suffix = self.random.choice([f".{self.files}", f"-202611{self.files:02d}"])
        rotated = log.path.with_name(log.path.name + suffix)
        self.settle_rotation(log, rotated)
        if self.random.random() < 0.5:
            packed = rotated.with_name(rotated.name + ".gz")
            packed.write_bytes(gzip.compress(rotated.read_bytes()))
            rotated.unlink()

    def settle_rotation(self, log: Log, rotated: Path) -> None:
        self.settle()  # a file that nobody has seen under its name is a run of its own
        log.path.rename(rotated)
        log.begin(self.files)
        self.append()
        self.settle()

    def rotate_twice(self) -> None:
        """Both while the daemon does not look: a file has lost the name before it was seen."""
        log = self.local()
        self.settle()
        self.daemon.process.send_signal(signal.SIGSTOP)
        self.files += 2
        number = self.files
        log.path.rename(log.path.with_name(f"{log.path.name}.{number}"))
        log.begin(number)
        self.write_rows(log, 50)
        log.path.rename(log.path.with_name(f"{log.path.name}.{number - 1}"))
        log.begin(number - 1)
        self.write_rows(log, 50)
        self.daemon.process.send_signal(signal.SIGCONT)
        self.settle()

    def compress_at_once(self) -> None:
        """Rotated and compressed while the daemon does not look: the last rows lie in both."""
        log = self.local()
        self.settle()
        self.daemon.process.send_signal(signal.SIGSTOP)
        self.write_rows(log, 20)
        self.files += 1
        packed = log.path.with_name(f"{log.path.name}.{self.files}.gz")
        packed.write_bytes(gzip.compress(log.path.read_bytes()))
        log.path.unlink()
        log.begin(self.files)
        self.write_rows(log, 20)
        self.daemon.process.send_signal(signal.SIGCONT)
        self.settle()

    def fill_log_disk(self) -> None:
        """The disk of a log has room for some rows and a part of one; the rest comes later."""
        log = Log(self.folder / "full" / "train.log", "lf")
        log.path.unlink(missing_ok=True)
        self.files += 1
        log.begin(self.files)
        filler = log.path.with_name("filler")
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        rows = b"".join(self.row(self.rows + 1 + each).encode() for each in range(200))
        self.rows += 200
        with log.path.open("ab", buffering=0) as file:
            written = file.write(rows)
            assert written < len(rows)
            threading.Event().wait(self.random.random())
            filler.unlink()
            file.write(rows[written:])
        log.rows = 200
        self.lose(log)

    def copytruncate(self) -> None:
        log = self.local()
        self.lose(log)
        self.files += 1
        shutil.copy(log.path, log.path.with_name(f"{log.path.name}.{self.files}"))
        self.truncate_to_nothing(log)

    def truncate_and_regrow(self) -> None:
        log = self.local()
        self.lose(log)
        size = log.path.stat().st_size
        self.truncate_to_nothing(log)
        log.write("x" * size + "\n")
        self.write_rows(log, 50)

    def truncate_to_nothing(self, log: Log) -> None:
        self.files += 1
        os.truncate(log.path, 0)
        log.begin(self.files)

    def delete_and_recreate(self) -> None:
        log = self.local()
        self.lose(log)
        self.files += 1
        log.path.unlink()
        log.begin(self.files)

    def replace_by_a_copy(self) -> None:
        log = self.local()
        self.settle()
        swap = self.folder / "elsewhere" / "swap"
        shutil.copy(log.path, swap)
        swap.replace(log.path)
        self.write_rows(log, 5)  # until it has been seen, another link of it would be a file
        self.settle()

    def link(self) -> None:
        """A second name of the same file, and a symbolic link that gets another target."""
        log = self.local()
        self.write_rows(log, 1)  # as above: its file may be a new one
        self.settle()
        self.files += 1
        second = log.path.with_name(f"hard{self.files}.log")
        os.link(log.path, second)
        target = Log(self.folder / "elsewhere" / f"target{self.files}.log", "lf")
        target.begin(self.files)
        swap = self.folder / "elsewhere" / "link"
        swap.symlink_to(target.path)
        swap.replace(self.folder / "logs" / "link.log")
        self.write_rows(target, 100)
        self.append()
        self.lose(target)
        second.unlink()

    def garbage(self) -> None:
        """NULs, a hole, bytes that are no UTF-8, a line of a megabyte: no rows, none is lost."""
        log = self.some()
        if log.form == "utf-16":
            return
        end = ENDS[log.form].encode()
        log.write_bytes(
            self.random.choice([b"\0" * 5000, b"\xff\xfe\xfa", b"x" * (2**20 - 10)]) + end
        )
        if self.random.random() < 0.3:
            os.truncate(log.path, log.path.stat().st_size + 2**22)
            log.write_bytes(end)

    # What the machine does.

    def kill(self) -> None:
        """What was read since the last commit counts only if it can be read again."""
        self.daemon.stop(signal.SIGKILL)
        at_risk = sum(rows for at, rows in self.gone if at > time.monotonic() - 2 * COMMIT_SECONDS)
        self.daemon = self.start()
        deadline, counts = time.monotonic() + PATIENCE, [self.counted()]
        while (
            counts[-QUIET:] != [counts[-1]] * QUIET
            or counts[-1] < self.rows - at_risk
            or self.is_behind()
        ):
            assert time.monotonic() < deadline, f"{self.rows - counts[-1]} were lost: {self.acts}"
            threading.Event().wait(0.5)
            counts.append(self.counted())
        counted, rows = counts[-1], self.rows
        assert counted <= rows, f"{counted - rows} rows came twice: {self.acts}"
        self.rows = counted

    def pause(self) -> None:
        self.daemon.process.send_signal(signal.SIGSTOP)
        self.append()
        self.append()
        self.daemon.process.send_signal(signal.SIGCONT)

    def fill_state_disk(self) -> None:
        """Reading goes on without room for the state; with room again, so does the state."""
        filler = self.folder / "state" / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                for _ in range(STATE_BYTES // 4096 + 1):
                    file.write(bytes(4096))
            except OSError:
                pass
            self.append()
            self.settle()
        filler.unlink()

    def server_errors(self) -> None:
        """The mounted server answers EIO for a while."""
        fault = self.folder / "remote" / ".eio"
        fault.touch()
        self.append()
        threading.Event().wait(self.random.random())
        fault.unlink()

    def run(self, acts: list[Callable[[], None]], count: int) -> None:
        while not any(log.path.parent.name == "logs" for log in self.logs):
            self.new_file()
        for _ in range(count):
            act = self.random.choice(acts)
            self.acts.append(act.__name__)
            act()
        self.settle()
        self.kill()
        self.settle()
        status = Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert peak is not None
        assert int(peak[1]) / 1024 < PEAK_MB


@pytest.fixture
def mounts(tmp_path: Path) -> Iterator[set[str]]:
    """Which file systems could be mounted: `state` and `full`, small; `mounted`, FUSE."""
    for name in ("state", "full", "remote", "mounted"):
        (tmp_path / name).mkdir()
    found = set()
    for name, size in (("state", STATE_BYTES), ("full", FULL_BYTES)):
        small = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(tmp_path / name)]
        done = os.getuid() == 0 and subprocess.run(small, capture_output=True, check=False)
        if done and done.returncode == 0:
            found.add(name)
    server = None
    if os.access("/dev/fuse", os.R_OK | os.W_OK):
        script = Path(__file__).with_name("fuse_server.py")
        server = subprocess.Popen(
            [sys.executable, str(script), str(tmp_path / "remote"), str(tmp_path / "mounted")],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None
        if server.stdout.readline().strip() == "mounted":
            found.add("mounted")
    yield found
    if server is not None:
        server.kill()
        server.communicate()
    for name in found:
        subprocess.run(["umount", "--lazy", str(tmp_path / name)], check=True)


def play(folder: Path, start: Callable[..., Any], mounts: set[str], seed: int, count: int):
    chaos = Chaos(folder, start, seed)
    acts = [
        *(chaos.append, chaos.append, chaos.new_file, chaos.rotate, chaos.copytruncate),
        *(chaos.truncate_and_regrow, chaos.delete_and_recreate, chaos.replace_by_a_copy),
        *(chaos.link, chaos.garbage, chaos.kill, chaos.pause, chaos.rotate_twice),
        chaos.compress_at_once,
    ]
    if "state" in mounts:
        acts.append(chaos.fill_state_disk)
    if "full" in mounts:
        acts.append(chaos.fill_log_disk)
    if "mounted" in mounts:
        acts.append(chaos.server_errors)
    chaos.run(acts, count)


def test_each_row_comes_once_with_disks_full_and_two_rotations_at_once(tmp_path, start, mounts):
    chaos = Chaos(tmp_path, start, seed=0)
    acts = [chaos.rotate_twice, chaos.compress_at_once]
    acts += [chaos.fill_log_disk] if "full" in mounts else []
    chaos.run(acts, 4)


def test_each_row_comes_once_whatever_happens(tmp_path, start, mounts):
    play(tmp_path, start, mounts, seed=1, count=12)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 22))
def test_each_row_comes_once_in_long_lives(tmp_path, start, mounts, seed):
    play(tmp_path, start, mounts, seed, count=60)
