"""Whether healthy runs are left alone, and hung ones reported, whatever happens to the monitor.

Runs take a step every two seconds all the time, in logs of three kinds: stamped lines, JSON rows
with times, lines without. The daemon is started on their backlog, stopped for longer than a stall
limit, given a tenth of a core, and killed and started again and again. In each of these phases
another run hangs. Alerts are counted in what the daemon prints, posts by a local webhook.
"""

import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import urllib.request
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from pathlib import Path

import side_by_side as bench
from ready import answers

PITCH = 2.0
"""Seconds between two steps of a run."""
TOTAL = 1_000_000
LIMIT = 30.0
"""Seconds: the least stall limit, which a pace of two seconds gets."""
SLACK_SECONDS = 15.0
"""A page may come so much later than limit and reading: two evaluations of rules, and the post."""
STOPPED_SECONDS, HANGS_AFTER = 70.0, 10.0
"""How long it is stopped, and when in this time a run hangs."""
STARVED_SECONDS = 90.0
"""How much later a page may come with a share of a core: silence counts once it was read."""
METRIC = "ldlm_train_stall_limit_seconds"
PATIENCE = 300.0
PHASES = ("started", "stopped", "starved", "restarted")
STALLED = "TrainingStalled"


def line(kind: int, step: int, at: float) -> str:
    """A step in one of three kinds of log, at a time (Unix seconds)."""
    loss = 2 + 1 / (1 + step) + step * 37 % 991 / 1e5
    plain = f"step {step}/{TOTAL} loss {loss:.4f} grad_norm 1.02 lr 1e-4\n"
    if kind % 3 == 1:
        row = {"step": step, "total_steps": TOTAL, "time": round(at, 3), "loss": round(loss, 4)}
        return json.dumps(row) + "\n"
    stamp = datetime.fromtimestamp(at).astimezone()
    return plain if kind % 3 else f"{stamp:%Y-%m-%d %H:%M:%S} INFO {plain}"


class Writer(threading.Thread):
    """Writes to all logs until `stop`, but to those of `hung`; `gap`: its longest pause (s)."""

    def __init__(self, folder: Path, runs: Sequence[str], backlog: int) -> None:
        super().__init__()
        self.hung: set[str] = set()
        self.gap = 0.0
        self._logs = {run: folder / f"{run}_node0.log" for run in runs}
        self._backlog = backlog
        self._stopping = threading.Event()
        now = time.time() - PITCH
        for kind, log in enumerate(self._logs.values()):
            at = [(step, now - (backlog - step) * PITCH) for step in range(backlog)]
            bench.append(log, "".join(line(kind, step, time) for step, time in at))

    def last_step_at(self, run: str) -> float:
        return self._logs[run].stat().st_mtime

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def run(self) -> None:
        started = last = time.monotonic()
        for turn in count():
            for kind, (run, log) in enumerate(self._logs.items()):
                due = started + PITCH * (turn + kind / len(self._logs))
                if self._stopping.wait(max(due - time.monotonic(), 0.0)):
                    return
                if run not in self.hung:
                    bench.append(log, line(kind, self._backlog + turn, time.time()))
                self.gap, last = max(self.gap, time.monotonic() - last), time.monotonic()


class Posts(bench.Slack):
    """A webhook that keeps what it was sent, with when (Unix seconds)."""

    def __init__(self) -> None:
        super().__init__([])
        self.sent: list[tuple[float, str]] = []

    def take(self, message: str, arrived: float) -> None:
        del arrived
        with self.changed:
            self.sent.append((time.time(), message))
            self.changed.notify_all()

    def page(self, run: str, timeout: float) -> float | None:
        """When the first post said that `run` is stalled; waits for it."""
        with self.changed:
            self.changed.wait_for(lambda: self._paged(run) is not None, timeout)
            return self._paged(run)

    def _paged(self, run: str) -> float | None:
        return next((at for at, text in self.sent if run in text and STALLED in text), None)


@contextmanager
def starved(process: int, percent: int) -> Iterator[str]:
    """Give a process a share of a core: by a control group, else by stopping it in turn; how."""
    name = f"healthy-runs-{process}"
    root = Path("/sys/fs/cgroup")
    for group, limit in ((root / name, "cpu.max"), (root / "cpu" / name, "cpu.cfs_quota_us")):
        try:
            group.mkdir()
            for file, text in ((limit, f"{1000 * percent}"), ("cgroup.procs", f"{process}")):
                with (group / file).open("r+") as knob:  # fails where it is no control group
                    knob.write(text)
        except OSError:
            with suppress(OSError):
                group.rmdir()
            continue
        yield limit
        (group.parent / "cgroup.procs").write_text(str(process))
        group.rmdir()
        return
    ending = threading.Event()

    def stop_in_turn() -> None:
        while not ending.wait(percent / 100):
            os.kill(process, signal.SIGSTOP)
            ending.wait(1 - percent / 100)
            os.kill(process, signal.SIGCONT)

    thread = threading.Thread(target=stop_in_turn)
    thread.start()
    yield "SIGSTOP and SIGCONT"
    ending.set()
    thread.join()


@dataclass(slots=True)
class Trial:
    """The phases, one after the other; `hung`: the run that hangs in each.

    `readings`: the seconds of each start until all was read, of those that came so far. `pages`:
    for each phase the seconds from the last step to the post; None where none came. `limits`: the
    stall limits of these runs (seconds).
    """

    args: Namespace
    folder: Path
    writer: Writer
    posts: Posts
    hung: dict[str, str]
    readings: list[float] = field(default_factory=list)
    pages: dict[str, float | None] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    starved_by: str = ""

    def run(self) -> None:
        with self._daemon() as daemon:
            self._ready(daemon)
            self._rest(daemon, LIMIT)
            self._page("started", daemon)
            self._stop(daemon)
            self._starve(daemon)
        self._restart_again_and_again()
        self._hang("restarted")
        with self._daemon() as daemon:
            self._ready(daemon)
            self._page("restarted", daemon)
            self._rest(daemon, LIMIT)

    def false_alerts(self) -> int:
        """How many stalls of runs that did not hang were printed."""
        printed = (self.folder / "daemon.out").read_text("utf-8", "replace").splitlines()
        fired = [each for each in printed if STALLED in each and " FIRING " in each]
        return sum(not self._is_of_hung(each) for each in fired)

    def false_posts(self) -> int:
        """How many posts were about anything but a run that hung."""
        return sum(not self._is_of_hung(text) for _, text in self.posts.sent)

    def _is_of_hung(self, text: str) -> bool:
        return any(run in text for run in self.hung.values())

    def _daemon(self) -> AbstractContextManager[bench.Daemon]:
        return bench.running_daemon(self.args.command, self.folder, self.posts.url)

    def _ready(self, daemon: bench.Daemon) -> None:
        started = time.monotonic()
        url = daemon.metrics_url.removesuffix("/metrics") + "/-/ready"
        while not answers(url):
            self._rest(daemon, 0.25)
            if time.monotonic() - started > bench.CATCH_UP_SECONDS:
                raise bench.MeasurementError("it was never ready")
        self.readings.append(time.monotonic() - started)

    def _rest(self, daemon: bench.Daemon, seconds: float) -> None:
        if daemon.ended_within(seconds):
            raise bench.MeasurementError(f"it ended with {daemon.process.returncode}")

    def _hang(self, phase: str) -> None:
        self.writer.hung.add(self.hung[phase])

    def _ask_limit(self, phase: str, daemon: bench.Daemon) -> None:
        with urllib.request.urlopen(daemon.metrics_url, timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        [line] = [each for each in lines if each.startswith(METRIC) and self.hung[phase] in each]
        self.limits[phase] = float(line.rpartition(" ")[2])

    def _page(self, phase: str, daemon: bench.Daemon) -> None:
        """Let a run hang, if it does not yet, and wait for its post."""
        if phase not in self.limits:
            self._ask_limit(phase, daemon)
        self._hang(phase)
        at = self.posts.page(self.hung[phase], PATIENCE)
        self.pages[phase] = at and at - self.writer.last_step_at(self.hung[phase])
        self._rest(daemon, 0)

    def _stop(self, daemon: bench.Daemon) -> None:
        self._ask_limit("stopped", daemon)
        daemon.process.send_signal(signal.SIGSTOP)
        time.sleep(HANGS_AFTER)
        self._hang("stopped")
        time.sleep(STOPPED_SECONDS - HANGS_AFTER)
        daemon.process.send_signal(signal.SIGCONT)
        self._page("stopped", daemon)
        self._rest(daemon, LIMIT)

    def _starve(self, daemon: bench.Daemon) -> None:
        with starved(daemon.process.pid, self.args.percent) as self.starved_by:
            self._rest(daemon, 2 * LIMIT)
            self._page("starved", daemon)
        self._rest(daemon, LIMIT)

    def _restart_again_and_again(self) -> None:
        """Every second time it reads all first; now and then it is down for more than a limit."""
        rng = random.Random(self.args.seed)
        for number in range(self.args.restarts):
            with self._daemon() as daemon:
                if number % 2:
                    self._ready(daemon)
                self._rest(daemon, rng.uniform(0, 10))
                daemon.process.kill()
                daemon.process.wait()
            if number % 8 == 4:
                time.sleep(LIMIT + 10)


def measure(args: Namespace, runs: int) -> bench.Row:
    names = bench.run_names(runs + len(PHASES))
    hung = dict(zip(PHASES, names, strict=False))  # the first runs: of each kind of log
    with tempfile.TemporaryDirectory(prefix="healthy-runs-") as name, ExitStack() as stack:
        folder = Path(name)
        writer = Writer(folder, names, args.backlog // len(names))
        posts = stack.enter_context(bench.listening(Posts()))
        trial = Trial(args, folder, writer, posts, hung)
        writer.start()
        stack.callback(writer.stop)
        try:
            trial.run()
        finally:
            if args.keep:
                shutil.copy(folder / "daemon.out", args.keep / f"healthy_{runs}.out")
                (args.keep / f"healthy_{runs}.posts").write_text(json.dumps(posts.sent, indent=1))
        alerts, others = trial.false_alerts(), trial.false_posts()
    reading = max(trial.readings)
    unread = {
        "started": 0.0,
        "stopped": STOPPED_SECONDS - HANGS_AFTER,
        "starved": STARVED_SECONDS,
        "restarted": trial.readings[-1],
    }
    late = {each: trial.limits[each] + unread[each] + SLACK_SECONDS for each in PHASES}
    in_time = all((trial.pages[each] or math.inf) < late[each] for each in PHASES)
    pages = ", ".join(
        f"{each} {trial.pages[each] or math.nan:.0f} s (limit {trial.limits[each]:.0f} s)"
        for each in PHASES
    )
    return bench.Row(
        f"{runs} healthy runs: started, stopped {STOPPED_SECONDS:.0f} s, starved to "
        f"{args.percent} % ({trial.starved_by}), killed {args.restarts} times",
        "no stall, no post; each hang is paged",
        f"{alerts} stalls, {others} posts; hangs paged after: {pages}; first reading "
        f"{trial.readings[0]:.0f} s, longest {reading:.0f} s; longest pause of the writer "
        f"{writer.gap:.1f} s",
        met=alerts == others == 0 and in_time,
    )


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, nargs="+", default=[20, 200], help="healthy runs")
    parser.add_argument("--backlog", type=int, default=1_000_000, help="steps of all before")
    parser.add_argument("--restarts", type=int, default=20, help="how often it is killed")
    parser.add_argument("--percent", type=int, default=10, help="of a core while it starves")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for what it printed and sent")


def rows(args: Namespace) -> list[bench.Row]:
    if args.quick:
        args = Namespace(**{**vars(args), "backlog": args.backlog // 10, "restarts": 2})
    return [measure(args, runs) for runs in args.runs]


if __name__ == "__main__":
    flags = bench.arguments("Whether healthy runs are left alone.", add_flags)
    sys.exit(bench.report(lambda: rows(flags)))
