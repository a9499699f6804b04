"""What the benchmarks share: programs started and measured, logs to write, a table to print."""

import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

STEPS = 600
BARS = 20
NAN_LINE = "WARNING: Invalid text_loss detected: nan"
NAN_ALERT = "NonFiniteLoss "
NAN_FIRES = f"{NAN_ALERT}firing"
"""In a message that reports it; others of the same run may quote the line as well."""
SLOW_SECONDS = 20.0
"""A program that takes longer is not run again for a better figure."""
CATCH_UP_SECONDS = 600.0


class MeasurementError(Exception):
    """A figure could not be had: a program is missing, ended early, or answered wrongly."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `met` is None where the line is informative, not promised."""

    what: str
    target: str
    ours: str
    theirs: str = ""
    ratio: str = ""
    met: bool | None = None

    def __str__(self) -> str:
        met = {True: "yes", False: "**no**", None: ""}[self.met]
        cells = (self.what, self.target, self.ours, self.theirs, self.ratio, met)
        return f"| {' | '.join(cells)} |"


HEAD = "| what | target | ours | theirs | ratio | met |\n| --- | --- | --- | --- | --- | --- |"


@dataclass(frozen=True, slots=True)
class Spent:
    """What one run of a program took, in seconds, and what it printed."""

    wall: float
    cpu: float
    output: str


def arguments(description: str, *more: Callable[[ArgumentParser], object]) -> Namespace:
    """Flags of every benchmark, and its own; from here on SIGTERM ends what was started, too."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    parser = ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="sizes divided by ten")
    parser.add_argument("--command", default="ldlm-monitor", help="the program to measure")
    for add in more:
        add(parser)
    return parser.parse_args()


def report(measured: Callable[[], Sequence[Row]]) -> int:
    """Print the table of one benchmark; the exit code is 1 if a promise was not kept."""
    try:
        rows = measured()
    except MeasurementError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return 1
    print(HEAD, *rows, sep="\n", flush=True)
    return 1 if any(row.met is False for row in rows) else 0


def program(name: str, remedy: str) -> str:
    """Where a program is: first beside the running Python, then on the PATH."""
    here = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    found = shutil.which(name, path=here)
    if found is None:
        raise MeasurementError(f"{name}: not found; {remedy}")
    return str(Path(found).absolute())  # it is run in another folder


def monitor(command: str) -> str:
    return program(command, "install the project or give --command")


def debian(name: str, package: str) -> str:
    return program(name, f"on Debian: apt-get install {package}")


def timed(argv: Sequence[str], folder: Path, codes: Sequence[int] = (0,)) -> Spent:
    """Run a program to its end; raises if its exit code is another than `codes`."""
    with tempfile.TemporaryFile() as printed:
        before = os.times()
        started = time.perf_counter()
        done = subprocess.run(
            argv, cwd=folder, env=_environment(), stdout=printed, stderr=printed, check=False
        )
        wall = time.perf_counter() - started
        after = os.times()
        printed.seek(0)
        output = printed.read().decode("utf-8", "replace")
    if done.returncode not in codes:
        raise MeasurementError(f"{argv[0]} ended with {done.returncode}: {output[-2000:]}")
    user = after.children_user - before.children_user
    return Spent(wall, user + after.children_system - before.children_system, output)


@dataclass(frozen=True, slots=True)
class Backfill:
    """A program's time on a file, and on an empty one (its start-up)."""

    full: Spent
    empty: Spent

    @property
    def seconds(self) -> float:
        """Without the start-up; never 0, so that a ratio of it exists."""
        return max(self.full.wall - self.empty.wall, 1e-3)

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s + {self.empty.wall:.2f} s start"


def catch_ups(
    runs: Sequence[Callable[[str], Spent]], *, full: str, empty: str, repeats: int
) -> list[Backfill]:
    """The quickest of several rounds for each program; all take their turn in each round.

    So a busy spell of the machine meets all. One that is slow anyway is not repeated.
    """
    fulls = [[run(full)] for run in runs]
    empties = [[run(empty)] for run in runs]
    for _ in range(repeats - 1):
        for run, took, started in zip(runs, fulls, empties, strict=True):
            if took[0].wall <= SLOW_SECONDS:
                took.append(run(full))
                started.append(run(empty))
    return [
        Backfill(*(min(spent, key=lambda one: one.wall) for spent in pair))
        for pair in zip(fulls, empties, strict=True)
    ]


def times_faster(ours: Backfill, theirs: Backfill) -> float:
    return theirs.seconds / ours.seconds


def percentile(values: Sequence[float], share: float) -> float:
    """By nearest rank: the smallest value that `share` of all do not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else math.nan


def append(log: Path, text: str) -> float:
    """Append with one write(), as a trainer's flush does; the time just before it."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        started = time.perf_counter()
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
    return started


def run_names(count: int, start: datetime | None = None) -> list[str]:
    """Names of launches, one an hour; of several groups, give each its own `start`."""
    first = start or datetime(2026, 1, 1, tzinfo=UTC)
    return [f"train_{first + timedelta(hours=hour):%Y%m%d_%H%M%S}" for hour in range(count)]


def banner(run: str) -> str:
    title = "*** Starting MMDiT with Joint Text-Latent Diffusion ***"
    return f"Working directory: /training/saved/{run}\n{title}\n* World size: 1\n{'*' * 25}\n"


def bar(step: int, steps: int = STEPS) -> str:
    """One repaint of the trainer's progress bar, cut at 100 columns as in real logs."""
    loss = 2 + 3 / step
    percent = 100 * step / steps
    progress = f"Epoch=0/1, Progress={percent:.1f}%, Loss={loss:.4f}, Text={loss:.4f}"
    elapsed = f"{step // 960:02d}:{step // 16 % 60:02d}"
    shown = f"Training: {int(percent):3d}%| | {step}/{steps} [{elapsed}<00:37, 15.92it/s, "
    return "\r" + (shown + progress)[:100]


def bars(count: int = BARS) -> str:
    """The bar's repaints over the first, healthy steps."""
    return "".join(bar(step) for step in range(1, count + 1)) + "\r"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Slack(ThreadingHTTPServer):
    """An incoming webhook that notes when each run's NaN was first reported, and how often.

    The first report may say that the alert is resolved, where it comes as late as that.
    `answer` is what it does with the request it is given; it accepts by default.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, runs: Sequence[str], answer: "Callable[[SlackRequest], bool] | None" = None
    ) -> None:
        super().__init__(("127.0.0.1", 0), SlackRequest)
        self.runs = runs
        self.answer = answer or accept
        self.arrivals: dict[str, float] = {}
        self.accepted: dict[str, int] = {}
        self.messages = 0
        self.changed = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/services/T00/B00/benchmark"

    def take(self, message: str, arrived: float) -> None:
        """Count a message that was answered with 200."""
        with self.changed:
            self.messages += 1
        if NAN_ALERT not in message:
            return
        fires = NAN_FIRES in message and NAN_LINE in message
        with self.changed:
            for run in self.runs:
                if run in message:
                    self.arrivals.setdefault(run, arrived)
                    self.accepted[run] = self.accepted.get(run, 0) + fires
            self.changed.notify_all()

    def wait_for(self, count: int, timeout: float) -> bool:
        """Until `count` runs were reported; False if it took longer than `timeout` seconds."""
        with self.changed:
            return self.changed.wait_for(lambda: len(self.arrivals) >= count, timeout)

    def handle_error(self, *_: object) -> None:
        """A client that was killed has gone: its broken connection is part of the trial."""


class SlackRequest(BaseHTTPRequestHandler):
    """One message; it is counted once the answer has gone out."""

    server: Slack

    def do_POST(self) -> None:
        arrived = time.perf_counter()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        message = json.dumps(json.loads(body), ensure_ascii=False)
        if self.server.answer(self):
            self.server.take(message, arrived)

    def say(self, status: int, text: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


def accept(request: SlackRequest) -> bool:
    request.say(200, b"ok")
    return True


@contextmanager
def listening(slack: Slack) -> Iterator[Slack]:
    thread = threading.Thread(target=slack.serve_forever, daemon=True)
    thread.start()
    try:
        yield slack
    finally:
        slack.shutdown()
        slack.server_close()
        thread.join()


@dataclass(slots=True)
class Daemon:
    """A started `ldlm-monitor` on all logs of a folder."""

    process: subprocess.Popen[bytes]
    metrics_url: str

    def bytes_taken_in(self) -> float:
        """What it says it has read; 0 while it does not answer yet."""
        try:
            with urllib.request.urlopen(self.metrics_url, timeout=60) as answer:
                lines = answer.read().decode().splitlines()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return 0.0
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith("ldlm_monitor_bytes_total")
        )

    def wait_for_bytes(self, total: int, what: str, timeout: float = CATCH_UP_SECONDS) -> float:
        """Until it has read `total` bytes; the seconds that it took."""
        started = time.monotonic()
        while self.bytes_taken_in() < total:
            if self.ended_within(0.1):
                raise MeasurementError(f"it ended with {self.process.returncode} before {what}")
            if time.monotonic() - started > timeout:
                raise MeasurementError(f"it did not come so far within {timeout:.0f} s: {what}")
        return time.monotonic() - started

    def ended_within(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


@contextmanager
def running_daemon(
    command: str, folder: Path, webhook: str | None = None, pattern: str = "*.log"
) -> Iterator[Daemon]:
    """The daemon on `folder`/`pattern`; shows what it printed last if the measurement fails."""
    port = free_port()
    arguments = [str(folder / pattern), "--headless", "--listen", f"127.0.0.1:{port}"]
    arguments += ["--state-dir", str(folder / "state")]
    output = folder / "daemon.out"
    with output.open("ab") as printed:
        process = subprocess.Popen(
            [monitor(command), *arguments],
            env=_environment(webhook),
            cwd=folder,
            stdout=printed,
            stderr=printed,
        )
    try:
        yield Daemon(process, f"http://127.0.0.1:{port}/metrics")
    except BaseException:
        sys.stderr.write(output.read_text("utf-8", "replace")[-2000:])
        raise
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, and kill it if it does not."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _environment(webhook: str | None = None) -> dict[str, str]:
    """The user's, without settings of ours; bytecode is kept, as of an installed package."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LDLM_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    kept["NO_PROXY"] = "127.0.0.1"
    kept["LDLM_POST_INTERVAL_SECONDS"] = "0"  # else the pacing would be measured
    return kept | ({"LDLM_SLACK_WEBHOOK_URL": webhook} if webhook else {})
