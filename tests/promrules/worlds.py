"""Random series, and a real Prometheus that holds them too."""

import contextlib
import http.client
import json
import math
import os
import random
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ldlm_promrules.samples import Labels
from tests.promrules.labelled import make_labels
from tests.promrules.script_runner import ScriptStorage

INTERVAL = 10
PHASE = 7
"""Samples stand at 7 s past every ten seconds, so never at the edge of a range: what is
asked for stands at multiples of five."""
SLOTS = 60
EPOCH = 1_699_999_200
"""The first world's beginning, a multiple of two hours: each world is one block of Prometheus."""
APART = 7200

ENGINE = os.environ.get("LDLM_PROMQL_ENGINE")
"""A build of `engine/main.go`: the engine of a Prometheus 3, which few systems package."""

Points = list[tuple[float, float]]


class World:
    """Series of a time of their own, `start` to `start + 600`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.start = EPOCH + number * APART
        self.series = dict(_series(random.Random(number), self.start))
        self.storage = ScriptStorage()
        for labels, points in self.series.items():
            self.storage.add(labels, points)


def _series(rng: random.Random, start: float) -> Iterator[tuple[Labels, Points]]:
    for run in ("a", "b"):
        for rank in ("0", "1", "2"):
            shared = {"run": run, "rank": rank}
            unique = 16 * int(rank) + (8 if run == "b" else 0)
            # Prometheus 3 reaches back to a counter's zero less far than 2.42: counters
            # with gaps are far from zero, the others are born at zero and have no gap.
            yield make_labels(__name__="steps", **shared), _counter(rng, start)
            yield make_labels(__name__="total", **shared), _high_counter(rng, start)
            yield make_labels(__name__="gauge", **shared), _gauge(rng, start, specials=0.1)
            yield make_labels(__name__="level", **shared), _level(rng, start, unique)
        if rng.random() < 0.9:
            user = rng.choice(("x", "y"))
            yield (
                make_labels(__name__="owner", run=run, user=user),
                _gauge(rng, start, specials=0),
            )
        for rank in ("0", "1"):
            bounds = ("0.5", "1", "2.5", "+Inf")
            counts = [0.0] * len(bounds)
            buckets: list[Points] = [[] for _ in bounds]
            for at in _times(rng, start, gaps=0):
                for index, _ in enumerate(bounds):
                    buckets[index].append((at, sum(counts[: index + 1])))
                counts = [count + rng.randrange(4) for count in counts]
            for bound, points in zip(bounds, buckets, strict=True):
                labels = make_labels(__name__="wait_bucket", run=run, rank=rank, le=bound)
                yield labels, points
    # A histogram that is none: bounds that are no numbers, and counts that fall.
    for bound in ("0.5", "1", "1_0", "2.5", "0x8p0", "0x8", "soon", "", "+Inf"):
        points = [(at, float(rng.randrange(9))) for at in _times(rng, start, gaps=0.2)]
        yield make_labels(__name__="odd_bucket", run="a", le=bound), points
    yield make_labels(__name__="clock"), [(at, at * 40.0) for at in _times(rng, start, gaps=0.2)]


def _times(rng: random.Random, start: float, gaps: float) -> list[float]:
    """From a random birth to a random death; `gaps` is the share of samples left out."""
    birth, death = rng.randrange(SLOTS // 3), rng.randrange(SLOTS // 3, SLOTS)
    return [
        start + slot * INTERVAL + PHASE
        for slot in range(birth, death)
        if gaps == 0 or rng.random() >= gaps
    ]


def _counter(rng: random.Random, start: float) -> Points:
    value, points = 0.0, []
    for at in _times(rng, start, gaps=0):
        points.append((at, value))
        value = 0.0 if rng.random() < 0.05 else value + rng.randrange(5)
    return points


def _high_counter(rng: random.Random, start: float) -> Points:
    value, points = 2.0**20, []
    for at in _times(rng, start, gaps=rng.choice((0, 0.2, 0.6))):
        points.append((at, value))
        value += rng.randrange(50)
    return points


def _gauge(rng: random.Random, start: float, specials: float) -> Points:
    points = []
    for at in _times(rng, start, gaps=rng.choice((0, 0.1, 0.8))):
        value = rng.randrange(-20, 40) / 4
        if rng.random() < specials:
            value = rng.choice((math.nan, math.inf, -math.inf, 0.0, 2.0**60))
        points.append((at, value))
    return points


def _level(rng: random.Random, start: float, unique: int) -> Points:
    """Values that no other series of the metric has."""
    times = _times(rng, start, gaps=rng.choice((0, 0.3)))
    return [(at, rng.randrange(-10, 10) + unique / 64) for at in times]


def openmetrics(worlds: list[World]) -> str:
    families: dict[str, list[str]] = {}
    for world in worlds:
        for labels, points in world.series.items():
            pairs = dict(labels)
            name = pairs.pop("__name__")
            inner = ",".join(f'{label}="{value}"' for label, value in pairs.items())
            families.setdefault(name, []).extend(
                f"{name}{{{inner}}} {_shown(value)} {at:.3f}" for at, value in points
            )
    lines = [line for name in families for line in (f"# TYPE {name} unknown", *families[name])]
    return "\n".join([*lines, "# EOF\n"])


def _shown(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else "+Inf" if value > 0 else "-Inf"


class Prometheus:
    """A server that answers queries over HTTP."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, query: str, at: float) -> Any:
        """The API's answer: `status`, and `data` or `error`."""
        return self._post("query", {"query": query, "time": repr(at)})

    def ask_range(self, query: str, start: float, end: float, step: float) -> Any:
        """As `ask`, of a range query."""
        times = {"start": repr(start), "end": repr(end), "step": repr(step)}
        return self._post("query_range", {"query": query, **times})

    def _post(self, what: str, parameters: dict[str, str]) -> Any:
        if ENGINE is None:  # Prometheus 2 has its old name
            query = parameters["query"]
            parameters["query"] = query.replace("double_exponential_smoothing", "holt_winters")
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        self._connection.request("POST", f"/api/v1/{what}", urlencode(parameters), form)
        return json.loads(self._connection.getresponse().read())

    def ready(self) -> bool:
        try:
            self._connection.request("GET", "/-/ready")
            response = self._connection.getresponse()
            response.read()
        except OSError:
            self._connection.close()
            return False
        return response.status == 200

    def close(self) -> None:
        self._connection.close()


def as_json(worlds: list[World]) -> str:
    """What `engine/main.go` reads."""
    return json.dumps(
        [
            {
                "labels": dict(labels),
                "times": [at for at, _ in points],
                "values": [_shown(value) for _, value in points],
            }
            for world in worlds
            for labels, points in world.series.items()
        ]
    )


def _command(worlds: list[World], folder: Path, address: str) -> list[str]:
    """How to start Prometheus' own engine if it was built, else the installed Prometheus."""
    if ENGINE is not None:
        (folder / "worlds.json").write_text(as_json(worlds), encoding="utf-8")
        return [ENGINE, str(folder / "worlds.json"), address]
    source, data = folder / "worlds.om", folder / "data"
    source.write_text(openmetrics(worlds), encoding="utf-8")
    made = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(source), str(data)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    config = folder / "prometheus.yml"
    config.write_text("global: {evaluation_interval: 1m}\n", encoding="utf-8")
    return [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={address}",
        "--log.level=error",
    ]


@contextlib.contextmanager
def prometheus(worlds: list[World], folder: Path) -> Iterator[Prometheus]:
    """A Prometheus that holds the worlds, on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = _command(worlds, folder, f"127.0.0.1:{port}")
    with (
        (folder / "prometheus.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
        contextlib.closing(Prometheus(port)) as server,
    ):
        try:
            until = time.monotonic() + 60
            while not server.ready():
                assert process.poll() is None, (folder / "prometheus.log").read_text()
                assert time.monotonic() < until, "Prometheus is not ready after a minute"
                time.sleep(0.1)
            yield server
        finally:
            process.terminate()
            process.wait()
