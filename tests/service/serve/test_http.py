"""The routes, over a real connection."""

import base64
import gzip
import hashlib
import http.client
import json
import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from html import escape

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ldlm_monitor.base.points import Point, make_labels
from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.finished.report.html import policy
from ldlm_monitor.service.cli.health_report import run_page
from ldlm_monitor.service.serve import Server, Site
from ldlm_monitor.service.serve.metrics import families


def test_healthy_is_always_200_and_ready_follows_the_monitor(running):
    running.ready = False
    assert running.ask("/-/healthy").status == 200
    assert running.ask("/-/ready").status == 503
    running.ready = True
    assert running.ask("/-/ready").status == 200


def test_metrics_are_served_in_the_format_asked_for(running):
    text = running.ask("/metrics")
    assert text.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b'ldlm_monitor_notifications_total{outcome="sent",receiver="slack"} 3\n' in text.body
    assert b"ldlm_monitor_behind_bytes 512" in text.body
    other = running.ask("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert other.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert other.body.endswith(b"# EOF\n")


def test_a_query_changes_nothing(running):
    found, asked = (
        [line for line in running.ask(path).body.splitlines() if not line.startswith(b"process_")]
        for path in ("/metrics", "/metrics?name[]=nothing")
    )
    assert found == asked


def test_a_connection_serves_several_scrapes_and_compresses_them(running):
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=10)
    for _ in range(3):
        connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
        response = connection.getresponse()
        assert (response.version, response.headers["Content-Encoding"]) == (11, "gzip")
        assert b"ldlm_train_loss" in gzip.decompress(response.read())
        used = connection.sock
        assert used is not None  # http.client drops a connection that the server ends
    connection.close()


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("runs", {"monitor", "inputs", "reading", "judged_to"}),
        ("alerts", {"transitions"}),
        ("events", set()),
    ],
)
def test_the_api_gives_that_part_of_the_snapshot_with_its_version(running, name, beside):
    response = running.ask(f"/api/v1/{name}")
    assert response.headers["Content-Type"] == "application/json"
    document = json.loads(response.body)
    assert set(document) == {"version", "at", name} | beside
    assert (document["version"], len(document[name])) == (5, 1)


def test_non_finite_numbers_are_strings_in_json(running):
    run = json.loads(running.ask("/api/v1/runs").body)["runs"][0]
    assert run["statistics"]["loss"]["current"] == "NaN"
    assert run["statistics"]["loss"]["mean"] == 2.5


def test_json_can_be_read_back_into_the_views(running, make_snapshot):
    document = json.loads(running.ask("/api/v1/events").body)
    assert Snapshot.model_validate(
        {
            **make_snapshot().model_dump(include={"runs", "alerts", "monitor"}),
            **document,
            "points": (),
        }
    ).events == (make_snapshot().events)


def test_secrets_of_the_log_do_not_leave_through_the_api(running, make_snapshot):
    running.snapshot = make_snapshot(message="login hunter2 failed \udcff")
    for name in ("alerts", "events"):
        body = running.ask(f"/api/v1/{name}").body
        assert b"hunter2" not in body
        assert json.loads(body)[name]


def test_the_page_of_all_runs_escapes_names_and_runs_its_own_script_alone(running, make_snapshot):
    running.snapshot = make_snapshot(run="<script>alert(1)</script>" + "x" * 1000)
    response = running.ask("/")
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert response.body.count(b"<script") == 1
    assert b"&lt;script&gt;" in response.body
    assert b"x" * 500 not in response.body
    assert b'href="api/v1/alerts"' in response.body
    (script,) = re.findall(b"(?s)<script>(.*)</script>", response.body)
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    assert response.headers["Content-Security-Policy"] == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}';"
        " connect-src 'self'; form-action 'self'; frame-ancestors 'none'"
    )


def test_the_page_of_all_runs_filters_by_words_without_its_script(running, make_snapshot):
    found = running.ask("/?q=critical+R1").body.decode()
    assert 'href="runs/r1"' in found
    assert "<li hidden data-row" not in found
    assert 'value="critical R1"' in found
    none = running.ask("/?q=r1+nothing%22%3E").body.decode()
    assert "<li data-row" not in none
    assert "<li data-none>no run has these words</li>" in none
    assert 'value="r1 nothing&quot;&gt;"' in none


@pytest.mark.parametrize("run", ["r1", "a/b c", "größe?x#y", "50%", "<b>", "x" * 1000])
def test_the_page_of_all_runs_leads_to_that_of_each(running, make_snapshot, run):
    running.snapshot = make_snapshot(run=run)
    (link,) = re.findall('href="(runs/[^"]*)"', running.ask("/").body.decode())
    page = running.ask(f"/{link}")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert f"{escape(run[:300])}" in page.body.decode()
    assert page.headers.get_all("Content-Security-Policy") == [
        f"{policy(live=True)}; frame-ancestors 'none'"
    ]
    assert running.ask("/runs/other").status == 404


def test_the_page_of_a_run_shows_its_alerts_and_the_monitors_not_those_of_other_runs(make_snapshot):
    snapshot = make_snapshot()
    (mine,) = snapshot.alerts
    alerts = [
        mine,
        mine.model_copy(update={"name": "OfAnother", "labels": {**mine.labels, "run": "r2"}}),
        mine.model_copy(update={"name": "MonitorBehind", "labels": {"severity": "warning"}}),
    ]
    page, _ = run_page(snapshot.model_copy(update={"alerts": alerts}), "r1")
    assert "NonFiniteLoss" in page
    assert "MonitorBehind" in page
    assert "OfAnother" not in page


@pytest.mark.parametrize(
    "path", ["/nothing", "/metrics/", "/../etc/passwd", "/api/v1/", "/api/v1/version", "/%00"]
)
def test_other_paths_are_404(running, path):
    assert running.ask(path).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
def test_other_methods_are_405_and_say_what_is_allowed(running, method):
    response = running.ask("/api/v1/runs", method=method)
    assert response.status == 405
    assert response.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/", "/metrics", "/-/healthy", "/api/v1/runs", "/nothing"])
def test_head_gives_the_headers_of_get_and_no_body(running, path):
    get, head = running.ask(path), running.ask(path, method="HEAD")
    with socket.create_connection(("127.0.0.1", running.port), timeout=10) as connection:
        connection.sendall(f"HEAD {path} HTTP/1.0\r\n\r\n".encode())
        assert b"".join(iter(lambda: connection.recv(4096), b"")).endswith(b"\r\n\r\n")
    assert (head.status, head.headers["Content-Type"]) == (get.status, get.headers["Content-Type"])
    # The figures of the process in /metrics change from one answer to the next.
    spread = 64 if path == "/metrics" else 0
    assert abs(int(head.headers["Content-Length"]) - len(get.body)) <= spread


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/events", "/nothing"])
def test_browsers_must_guess_nothing_and_load_nothing(running, path):
    headers = running.ask(path, headers={"Host": "evil.example"}).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers.get_all("Server") == ["ldlm-monitor"]
    assert "Access-Control-Allow-Origin" not in headers


def test_concurrent_scrapes_each_see_one_whole_snapshot(running, make_snapshot):
    """While the attribute is replaced, no answer mixes two snapshots."""

    def numbered(number: int) -> Snapshot:
        points = tuple(
            Point("ldlm_train_step", make_labels(run="r1", rank=str(rank)), float(number))
            for rank in range(200)
        )
        return make_snapshot(points=points)

    snapshots = [numbered(number) for number in range(20)]
    running.snapshot = snapshots[0]

    def values_of_one_scrape(_: int) -> set[float]:
        response = running.ask("/metrics")
        assert response.status == 200
        families = text_string_to_metric_families(response.body.decode())
        return {s.value for f in families if f.name == "ldlm_train_step" for s in f.samples}

    with ThreadPoolExecutor(8) as pool:
        scrapes = pool.map(values_of_one_scrape, range(60))
        for snapshot in snapshots:
            running.snapshot = snapshot
        assert all(len(values) == 1 for values in scrapes)
    assert values_of_one_scrape(0) == {19.0}


def test_a_silent_client_delays_nobody(running):
    with socket.create_connection(("127.0.0.1", running.port), timeout=10):
        assert running.ask("/-/healthy").status == 200


@pytest.mark.parametrize("request_line", [b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x00\r\n\r\n"])
def test_nonsense_on_the_wire_does_no_harm(running, request_line, capfd):
    with socket.create_connection(("127.0.0.1", running.port), timeout=10) as connection:
        connection.sendall(request_line)
        while connection.recv(4096):
            pass
    assert running.ask("/-/healthy").status == 200
    assert capfd.readouterr().err == ""


def a_server(host: str, port: int, snapshot: Callable[[], Snapshot]) -> Server:
    return Server(
        host,
        port,
        Site(
            snapshot=snapshot,
            families=lambda: families(snapshot(), notifications={}, behind=0),
            ready=lambda: True,
        ),
    )


def test_a_taken_port_is_an_oserror(running, make_snapshot):
    with pytest.raises(OSError, match="in use"):
        a_server("127.0.0.1", running.port, make_snapshot)


def test_a_stopped_server_gives_its_port_back(make_snapshot):
    server = a_server("127.0.0.1", 0, make_snapshot)
    server.start()
    port = server.port
    server.stop()
    again = a_server("127.0.0.1", port, make_snapshot)
    assert again.port == port
    again.stop()


def test_ipv6_loopback_is_an_address_too(make_snapshot):
    try:
        server = a_server("::1", 0, make_snapshot)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    server.start()
    with socket.create_connection(("::1", server.port), timeout=10) as connection:
        connection.sendall(b"GET /-/healthy HTTP/1.0\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
    server.stop()


def test_an_internal_error_is_a_500_without_secrets(make_snapshot, caplog):
    def broken() -> Snapshot:
        raise RuntimeError("hunter2")

    server = a_server("127.0.0.1", 0, broken)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    server.stop()
    assert answer.startswith(b"HTTP/1.1 500")
    assert b"hunter2" not in answer
    assert "hunter2" in caplog.text
