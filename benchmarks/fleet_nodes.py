"""Nodes of a training for `fleet_scale.py`: logs that grow, and a real monitor at each."""

import json
import re
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import side_by_side as bench
from idle import cpu_seconds, megabytes

RANKS = 8
WORLD_SIZE = 10_000
PAST_STEPS = 1200
"""After so many, every detector has something to say."""
READY_SECONDS = 300.0
NCCL = (
    "node{node}:{pid}:{pid} [{rank}] NCCL INFO Channel 00/0 : {rank}[{rank}] -> {peer}[{peer}] "
    "via P2P/CUMEM\n"
)


def row(rank: int, step: int, at: float) -> str:
    """A step as the callback writes it; each rank has its own values."""
    loss = 2 + 3 / (step + 1) + 0.001 * rank
    values = {
        "type": "step", "step": step, "time": at, "loss": loss, "loss_text": loss / 2,
        "loss_latent": loss / 2, "grad_norm": 0.8 + 0.01 * rank, "learning_rate": 1e-4,
        "step_seconds": 1.0 + 0.001 * rank, "busy_seconds": 0.9 + 0.001 * rank,
        "data_seconds": 0.01, "samples_per_second": 64.0, "tokens_per_second": 65536.0,
        "memory_allocated_bytes": 6e10, "memory_reserved_bytes": 7e10, "total_steps": 100000,
    }  # fmt: skip
    return json.dumps(values) + "\n"


class Node:
    """The files of one node, which grow by a step a second."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.number = number
        folder.mkdir()
        self.ranks = range(number * RANKS, (number + 1) * RANKS)
        self.step = 0
        begun = time.time() - PAST_STEPS
        for rank in self.ranks:
            head = {"schema": "ldlm.health/1", "type": "run", "run": "job", "rank": rank}
            more = {"world_size": WORLD_SIZE, "time": begun, "framework": "torch"}
            self._append(f"health_rank{rank}.jsonl", json.dumps({**head, **more}) + "\n")
            line = NCCL.format(node=number, pid=1000 + rank, rank=rank, peer=rank + 1)
            self._append(f"train_node{number}.log", line * 16)
        for past in range(PAST_STEPS):
            self.go_on(begun + past)

    def _append(self, name: str, text: str) -> None:
        bench.append(self.folder / name, text)

    def go_on(self, at: float) -> None:
        """One step more of every rank."""
        for rank in self.ranks:
            self._append(f"health_rank{rank}.jsonl", row(rank, self.step, at))
        self._append(f"train_node{self.number}.log", bench.bar(self.step + 1, 100000))
        self.step += 1


@contextmanager
def training(nodes: Sequence[Node]) -> Iterator[None]:
    """All nodes take a step a second, in a thread."""
    over = threading.Event()

    def train() -> None:
        while not over.wait(1.0):
            for node in nodes:
                node.go_on(time.time())

    thread = threading.Thread(target=train)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Monitor:
    """The monitor of a node, as deploy/slurm starts it."""

    def __init__(self, command: str, node: Node) -> None:
        self.found = node.folder / "target.json"
        self.process = subprocess.Popen(
            [bench.monitor(command), str(node.folder), "--headless", "--run", "job",
             "--no-companions", "--listen", "127.0.0.1:0", "--file-sd", str(self.found),
             "--state-dir", str(node.folder / "state")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def url(self) -> str:
        (group,) = json.loads(self.found.read_text())
        return f"http://{group['targets'][0]}"

    def wait_until_ready(self) -> None:
        until = time.monotonic() + READY_SECONDS
        while time.monotonic() < until:
            with suppress(OSError):
                urllib.request.urlopen(f"{self.url()}/-/ready").close()
                return
            time.sleep(0.1)
        raise bench.MeasurementError(f"a monitor was not ready within {READY_SECONDS:.0f} s")

    def scrape(self) -> tuple[float, bytes]:
        """Seconds, and what came."""
        began = time.perf_counter()
        with urllib.request.urlopen(f"{self.url()}/metrics") as answer:
            body = answer.read()
        return time.perf_counter() - began, body

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


@dataclass(frozen=True, slots=True)
class OneNode:
    """What the monitor of a node costs there (median over the nodes), and what it serves."""

    cores: float
    resident: float
    seconds: float
    body: bytes

    @property
    def series(self) -> int:
        return sum(1 for line in self.body.splitlines() if line and not line.startswith(b"#"))

    @property
    def of_ranks(self) -> int:
        return len(re.findall(rb'[{,]rank="', self.body))


def measure_monitors(command: str, count: int, seconds: float) -> OneNode:
    with tempfile.TemporaryDirectory(prefix="fleet-") as name, ExitStack() as stack:
        nodes = [Node(Path(name) / f"node{number}", number) for number in range(count)]
        stack.enter_context(training(nodes))
        monitors = [Monitor(command, node) for node in nodes]
        for monitor in monitors:
            stack.callback(monitor.stop)
        for monitor in monitors:
            monitor.wait_until_ready()
        time.sleep(min(seconds, 5.0))
        before = [cpu_seconds(monitor.process.pid) for monitor in monitors]
        began = time.monotonic()
        time.sleep(seconds)
        spent = time.monotonic() - began
        after = [cpu_seconds(monitor.process.pid) for monitor in monitors]
        scrapes = [monitor.scrape() for monitor in monitors for _ in range(3)]
        return OneNode(
            median((new - old) / spent for new, old in zip(after, before, strict=True)),
            median(megabytes(monitor.process.pid, "VmRSS") for monitor in monitors),
            median(took for took, _ in scrapes),
            monitors[0].scrape()[1],
        )
