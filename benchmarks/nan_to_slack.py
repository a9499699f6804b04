"""How long a NaN takes from the trainer's write() to the Slack request that reports it.

Starts the daemon as a user does, with its webhook pointing at an HTTP server in this process, on
one run for each try. Then appends a line with a NaN to one log after the other and waits for the
request that names that run and quotes that line. Exits with 1 if one is lost or the daemon dies.
"""

import argparse
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

STEPS = 600
BARS = 20
NAN_LINE = "WARNING: Invalid text_loss detected: nan"


class Slack(ThreadingHTTPServer):
    """An incoming webhook that accepts everything and notes when each run's NaN was reported."""

    daemon_threads = True

    def __init__(self, runs: list[str]) -> None:
        super().__init__(("127.0.0.1", 0), SlackRequest)
        self.runs = runs
        self.arrivals: dict[str, float] = {}
        self.changed = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/services/T00/B00/benchmark"

    def take(self, message: str, arrived: float) -> None:
        if NAN_LINE not in message:
            return
        with self.changed:
            for run in self.runs:
                if run in message:
                    self.arrivals.setdefault(run, arrived)
            self.changed.notify_all()

    def wait_for(self, count: int, timeout: float) -> None:
        with self.changed:
            self.changed.wait_for(lambda: len(self.arrivals) >= count, timeout)


class SlackRequest(BaseHTTPRequestHandler):
    server: Slack

    def do_POST(self) -> None:
        arrived = time.perf_counter()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
        self.server.take(json.dumps(json.loads(body), ensure_ascii=False), arrived)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


def append(log: Path, text: str) -> float:
    """Append with one write(), as a trainer's flush does; the time just before it."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        started = time.perf_counter()
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
    return started


def banner(run: str) -> str:
    title = "*** Starting MMDiT with Joint Text-Latent Diffusion ***"
    return f"Working directory: /training/saved/{run}\n{title}\n* World size: 1\n{'*' * 25}\n"


def bars() -> str:
    """The progress bar's repaints over some healthy steps, cut at 100 columns as in real logs."""
    texts = []
    for step in range(1, BARS + 1):
        loss = 2 + 3 / step
        progress = (
            f"Epoch=0/1, Progress={100 * step / STEPS:.1f}%, Loss={loss:.4f}, Text={loss:.4f}"
        )
        bar = f"Training: {100 * step // STEPS:3d}%| | {step}/{STEPS} [00:01<00:37, 15.92it/s, "
        texts.append("\r" + (bar + progress)[:100])
    return "".join(texts) + "\r"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def bytes_taken_in(metrics_url: str) -> float:
    """What the daemon says it has read; 0 while it does not answer yet."""
    try:
        with urllib.request.urlopen(metrics_url, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return 0.0
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith("ldlm_monitor_bytes_total")
    )


def wait_until(condition: Callable[[], bool], daemon: subprocess.Popen[bytes], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        if daemon.poll() is not None:
            raise SystemExit(f"the daemon ended with {daemon.returncode} before {what}")
        if time.monotonic() > deadline:
            raise SystemExit(f"the daemon did not come so far within 60 s: {what}")
        time.sleep(0.05)


@contextmanager
def running_daemon(
    command: str, folder: Path, port: int, webhook: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The daemon on `folder`/*.log; shows what it printed if the measurement fails."""
    here = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    program = shutil.which(command, path=here)
    if program is None:
        raise SystemExit(f"{command}: not found; install the project or give --command")
    settings = {k: v for k, v in os.environ.items() if not k.startswith("LDLM_")}
    settings |= {"LDLM_SLACK_WEBHOOK_URL": webhook, "NO_PROXY": "127.0.0.1"}
    arguments = [str(folder / "*.log"), "--headless", "--listen", f"127.0.0.1:{port}"]
    arguments += ["--state-dir", str(folder / "state")]
    output = folder / "daemon.out"
    with output.open("wb") as printed:
        daemon = subprocess.Popen(
            [program, *arguments], env=settings, cwd=folder, stdout=printed, stderr=printed
        )
    try:
        yield daemon
    except BaseException:
        sys.stderr.write(output.read_text("utf-8", "replace")[-4000:])
        raise
    finally:
        daemon.terminate()
        daemon.wait(timeout=30)


def measure(command: str, tries: int, pause: float, timeout: float) -> list[float]:
    """Seconds from write() to request, one for each NaN that was reported."""
    first = datetime(2026, 1, 1, tzinfo=UTC)
    runs = [f"train_{first + timedelta(hours=i):%Y%m%d_%H%M%S}" for i in range(tries)]
    with tempfile.TemporaryDirectory(prefix="nan-to-slack-") as name, Slack(runs) as slack:
        folder = Path(name)
        logs = {run: folder / f"{run}_node0.log" for run in runs}
        threading.Thread(target=slack.serve_forever, daemon=True).start()
        for run, log in logs.items():
            append(log, banner(run))
        port = free_port()
        metrics_url = f"http://127.0.0.1:{port}/metrics"

        def caught_up() -> bool:
            return bytes_taken_in(metrics_url) >= sum(log.stat().st_size for log in logs.values())

        with running_daemon(command, folder, port, slack.url) as daemon:
            wait_until(caught_up, daemon, "reading the banners")
            for log in logs.values():
                append(log, bars())
            wait_until(caught_up, daemon, "reading the healthy bars")
            written = {}
            for run, log in logs.items():
                written[run] = append(log, NAN_LINE + "\n")
                time.sleep(pause)
            slack.wait_for(tries, timeout)
            if daemon.poll() is not None:
                raise SystemExit(f"the daemon ended with {daemon.returncode}")
        slack.shutdown()
    return [slack.arrivals[run] - written[run] for run in runs if run in slack.arrivals]


def percentile(values: list[float], share: float) -> float:
    """By nearest rank: the smallest value that `share` of all do not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else math.nan


def main() -> int:
    parser = argparse.ArgumentParser(description="Latency from a NaN in a log to Slack.")
    parser.add_argument("--tries", type=int, default=100, help="how many NaNs (default 100)")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds between two")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds until one is lost")
    parser.add_argument("--command", default="ldlm-monitor", help="the program to measure")
    args = parser.parse_args()
    seconds = measure(args.command, args.tries, args.pause, args.timeout)
    lost = args.tries - len(seconds)
    figures = {
        "p50": percentile(seconds, 0.5),
        "p99": percentile(seconds, 0.99),
        "max": percentile(seconds, 1.0),
    }
    cells = [f"{name} {value:.3f} s" for name, value in figures.items()]
    print(f"| NaN to Slack | {args.tries} tries | {lost} lost | {' | '.join(cells)} |")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
