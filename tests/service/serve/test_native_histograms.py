"""A real Prometheus with native histograms reads the protobuf format."""

import json
import math
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ldlm_monitor.base.histogram import Histogram
from ldlm_monitor.base.names import STEP_DURATION, created
from ldlm_monitor.base.points import Point, make_labels
from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.service.serve import Server, Site
from ldlm_monitor.service.serve.metrics import PROTOBUF, TEXT, exposition, families

PROMETHEUS = shutil.which("prometheus")
PATIENCE = 30.0
DURATIONS = [0.2 * 1.01 ** (number * 7 % 300) for number in range(300)]
RUN = make_labels(run='a "run"\n')
EVENTS = make_labels(run="a", kind="cuda_oom", severity="critical")

pytestmark = pytest.mark.skipif(
    PROMETHEUS is None, reason="the Debian package prometheus is missing"
)


def snapshot_of(make_snapshot: Callable[..., Snapshot]) -> Snapshot:
    steps, empty = Histogram((0.3, 1.0, 3.0)), Histogram((1.0,))
    steps.observe([0.0, *DURATIONS])
    points = (
        *steps.points(STEP_DURATION, RUN),
        *empty.points(STEP_DURATION, make_labels(run="empty")),
        Point("ldlm_train_loss", RUN, math.nan),
        Point("ldlm_train_learning_rate", RUN, -1e-300),
        Point("ldlm_events_total", EVENTS, 3),
        Point(created("ldlm_events_total"), EVENTS, 1_769_681_700.25),
    )
    return make_snapshot(points=points)


@pytest.fixture
def ask(make_snapshot: Callable[..., Snapshot], tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """Answers instant queries by a Prometheus that scrapes the snapshot every second."""
    snapshot = snapshot_of(make_snapshot)
    found = lambda: families(snapshot, notifications={}, behind=0)  # noqa: E731
    site = Site(snapshot=lambda: snapshot, ready=lambda: True, families=found)
    server = Server("127.0.0.1", 0, site)
    server.start()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    target = {"targets": [f"127.0.0.1:{server.port}"]}
    (tmp_path / "prometheus.yml").write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s"},
                "scrape_configs": [{"job_name": "ldlm", "static_configs": [target]}],
            }
        )
    )
    process = subprocess.Popen(
        [
            str(PROMETHEUS),
            "--enable-feature=native-histograms",
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address={address}",
        ],
        stderr=subprocess.DEVNULL,
    )

    def query(expression: str) -> Any:
        """The result, once there is one."""
        url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                    if result := json.load(answer)["data"]["result"]:
                        return result
            except OSError:  # it has not opened its port yet
                pass
            time.sleep(0.1)
        raise AssertionError(f"no answer to {expression}")

    yield query
    process.terminate()
    process.wait()
    server.stop()


@pytest.mark.live
def test_quantiles_of_the_native_histogram_are_those_of_the_steps(ask) -> None:
    """Within the 9 % that a bucket is wide; the classic bounds are up to threefold."""
    exact = quantiles([0.0, *DURATIONS], n=10)
    for rank in (2, 5, 9):
        [found] = ask(f"histogram_quantile({rank / 10}, {STEP_DURATION}{{run!='empty'}})")
        assert float(found["value"][1]) == pytest.approx(exact[rank - 1], rel=0.09)
    [count] = ask(f"histogram_count({STEP_DURATION}{{run!='empty'}})")
    assert (count["metric"]["run"], float(count["value"][1])) == ('a "run"\n', 301)
    [total] = ask(f"histogram_sum({STEP_DURATION}{{run!='empty'}})")
    assert float(total["value"][1]) == pytest.approx(sum(DURATIONS))
    [none] = ask(f"histogram_count({STEP_DURATION}{{run='empty'}})")
    assert float(none["value"][1]) == 0
    [zeros] = ask(f"histogram_fraction(-1, 1e-9, {STEP_DURATION}{{run!='empty'}})")
    assert float(zeros["value"][1]) == pytest.approx(1 / 301)


@pytest.mark.live
def test_the_protobuf_format_has_every_series_of_the_text(ask, make_snapshot) -> None:
    """But for the buckets, which are native there."""
    found = families(snapshot_of(make_snapshot), notifications={}, behind=0)
    kind, body = exposition(found, f"{TEXT};version=0.0.4,{PROTOBUF};q=0.5")
    assert kind.startswith(TEXT)
    expected = {
        (sample.name, frozenset(sample.labels.items())): repr(float(sample.value))
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        if family.type != "histogram" and not sample.name.startswith("process_")
    }
    got = {}
    for each in ask('{__name__=~"ldlm_.+",__name__!~".*_duration_seconds"}'):
        labels = {name: text for name, text in each["metric"].items() if name[:2] != "__"}
        del labels["job"], labels["instance"]
        got[each["metric"]["__name__"], frozenset(labels.items())] = repr(float(each["value"][1]))
    assert got == expected
