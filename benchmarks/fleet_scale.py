"""What a fleet costs: monitors of some nodes for real, and a Prometheus above many.

A node is eight ranks of one job, each with the callback's rows, and a log. Monitors follow the
nodes for real. What one of them serves is then served many times over, with the ranks numbered on
and the names of other nodes, to a real Prometheus with the rules of a fleet. Both are measured at
several sizes; what a bigger fleet costs is extrapolated along a line through them, and marked so.
"""

import gzip
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml

import side_by_side as bench
from fleet_nodes import RANKS, OneNode, measure_monitors
from idle import cpu_seconds, megabytes

ROOT = Path(__file__).resolve().parents[1]
RULES = ("default", "recording", "fleet")
SCRAPE_SECONDS = 15
SCRAPES = 4
"""So many rounds of scrapes and evaluations are waited for before anything is read."""
GOAL_NODES = 1250


class Copies:
    """Serves `body` as that of any node: GET /17 is node 17 of the same job."""

    def __init__(self, body: bytes) -> None:
        parts = re.split(rb'([{,]rank=")(\d+)(?=")', body)
        # Text, label and number by turns: only the numbers differ from node to node.
        self._parts = parts

        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = outer.body(int(self.path.strip("/")))
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_port}"

    def body(self, node: int) -> bytes:
        parts = list(self._parts)
        parts[2::3] = [b"%d" % (int(rank) + node * RANKS) for rank in parts[2::3]]
        return b"".join(parts)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@dataclass(frozen=True, slots=True)
class Above:
    """What Prometheus costs with so many nodes; `groups` are seconds of an evaluation."""

    nodes: int
    series: float
    resident: float
    cores: float
    groups: dict[str, float]

    @property
    def evaluation(self) -> float:
        return sum(self.groups.values())


def prometheus(folder: Path, nodes: int, copies: Copies) -> tuple[subprocess.Popen[bytes], str]:
    """Started with the rules of a fleet, and a target for each node."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    targets = [
        {"targets": [copies.address],
         "labels": {"__metrics_path__": f"/{node}", "instance": f"node{node}",
                    "node": f"node{node}", "cluster": "a", "job_id": "job"}}
        for node in range(nodes)
    ]  # fmt: skip
    (folder / "targets.json").write_text(json.dumps(targets))
    seconds = f"{SCRAPE_SECONDS}s"
    config = {
        "global": {"scrape_interval": seconds, "evaluation_interval": seconds},
        "rule_files": [str(ROOT / f"rules/{name}.yml") for name in RULES],
        "scrape_configs": [
            {"job_name": "ldlm-monitor", "file_sd_configs": [{"files": ["targets.json"]}]}
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    process = subprocess.Popen(
        [bench.debian("prometheus", "prometheus"), "--config.file=prometheus.yml",
         f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"],
        cwd=folder, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return process, f"http://127.0.0.1:{port}"


def measure_above(body: bytes, nodes: int, scrapes: int) -> Above:
    copies = Copies(body)
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        process, url = prometheus(Path(name), nodes, copies)
        try:
            time.sleep(SCRAPE_SECONDS * 2)
            before, began = cpu_seconds(process.pid), time.monotonic()
            time.sleep(SCRAPE_SECONDS * (scrapes - 1))
            cores = (cpu_seconds(process.pid) - before) / (time.monotonic() - began)
            with urllib.request.urlopen(f"{url}/api/v1/rules") as answer:
                groups = json.load(answer)["data"]["groups"]
            with urllib.request.urlopen(f"{url}/api/v1/status/tsdb") as answer:
                series = json.load(answer)["data"]["headStats"]["numSeries"]
            sick = [
                rule["name"] for each in groups for rule in each["rules"] if rule.get("lastError")
            ]
            if sick:
                raise bench.MeasurementError(f"rules failed: {sick}")
            return Above(
                nodes, series, megabytes(process.pid, "VmRSS"), cores,
                {each["name"]: float(each["evaluationTime"]) for each in groups},
            )  # fmt: skip
        finally:
            process.terminate()
            process.wait()
            copies.close()


def slope(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Least squares: what nothing costs, and what one more costs."""
    if len(points) < 2:
        raise bench.MeasurementError("a line needs two sizes or more: --nodes 50 100")
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    rise = sum((x - mean_x) * (y - mean_y) for x, y in points)
    step = rise / sum((x - mean_x) ** 2 for x, _ in points)
    return mean_y - step * mean_x, step


def drawn_on(found: Sequence[Above], what: str) -> float:
    """A figure of `Above` at the size of the goal, on the line through the sizes measured."""
    base, step = slope([(one.nodes, getattr(one, what)) for one in found])
    return base + step * GOAL_NODES


def tables(one: OneNode, found: Sequence[Above]) -> str:
    """Markdown: the node, Prometheus by size, and the goal."""
    packed = len(gzip.compress(one.body))
    others = one.series - one.of_ranks
    _, per_series = slope([(each.series, each.resident) for each in found])
    lines = [
        f"| one node, {RANKS} ranks | |",
        "| --- | --- |",
        f"| series in a scrape | {one.series}: {one.of_ranks / RANKS:.0f} a rank, and {others} |",
        f"| size of a scrape | {len(one.body) / 1e3:.0f} kB, {packed / 1e3:.1f} kB as gzip |",
        f"| time of a scrape (median) | {one.seconds * 1e3:.0f} ms |",
        f"| CPU of the monitor | {100 * one.cores:.1f} % of a core |",
        f"| memory of the monitor | {one.resident:.0f} MB |",
        "",
        "| Prometheus | series | memory | CPU | one evaluation of all rules, by the clock |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {each.nodes} nodes, {each.nodes * RANKS} ranks | {each.series:,.0f} | "
        f"{each.resident:,.0f} MB | {each.cores:.2f} cores | {each.evaluation:.2f} s |"
        for each in found
    ]
    lines.append(
        f"| *{GOAL_NODES:,} nodes, {GOAL_NODES * RANKS:,} ranks, drawn on* | "
        f"*{drawn_on(found, 'series'):,.0f}* | *{drawn_on(found, 'resident'):,.0f} MB* | "
        f"*{drawn_on(found, 'cores'):.1f} cores* | *{drawn_on(found, 'evaluation'):.1f} s* |"
    )
    slowest = sorted(found[-1].groups.items(), key=lambda each: -each[1])[:3]
    lines += [
        "",
        f"Memory for 1,000 series: {1000 * per_series:.1f} MB. The slowest groups of rules at "
        f"{found[-1].nodes} nodes: "
        + ", ".join(f"`{name}` {seconds:.2f} s" for name, seconds in slowest)
        + ".",
    ]
    return "\n".join(lines)


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--monitors", type=int, default=8, help="nodes with a real monitor")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to look at them")
    parser.add_argument("--nodes", type=int, nargs="+", default=[50, 100, 200], help="sizes")


def main(flags: Namespace) -> int:
    divide = 10 if flags.quick else 1
    scrapes = 2 if flags.quick else SCRAPES
    try:
        one = measure_monitors(
            flags.command, max(1, flags.monitors // divide), flags.seconds / divide
        )
        sizes = [max(1, nodes // divide) for nodes in flags.nodes]
        found = [measure_above(one.body, nodes, scrapes) for nodes in sizes]
        print(tables(one, found))
        load, cores = os.getloadavg()[2], os.cpu_count()
        print(
            f"\nThe machine has {cores} cores; its load over a quarter of an hour was {load:.1f}."
        )
    except bench.MeasurementError as error:
        print(f"fleet_scale.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(bench.arguments("What a fleet costs.", add_flags)))
