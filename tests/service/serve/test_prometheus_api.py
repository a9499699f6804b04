"""Prometheus' HTTP API over the embedded store: as promtool, clients and boards use it."""

import asyncio
import json
import math
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.points import Point, make_labels
from ldlm_monitor.base.text.sanitize import redact
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.service.serve import Server, Site, bounded_storage
from ldlm_monitor.service.serve.bounded_storage import BoundedStorage, QueryBudget
from ldlm_monitor.service.serve.prometheus import AT_ONCE
from ldlm_monitor.service.serve.request_parameters import QueryError
from ldlm_promrules.alerting import load_rules
from ldlm_promrules.promql import Evaluator, parse
from ldlm_promrules.promql.nodes import Subquery
from ldlm_promrules.query_answers import instant
from ldlm_promrules.samples import Matcher
from ldlm_promrules.series.series_store import SeriesStore
from ldlm_promrules.series.store_view import StoreView
from tests.service.serve.served import Running

START = 1_769_681_700.0  # 2026-01-29T10:15:00Z
STEPS = 60  # one each second
END = START + STEPS - 1
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def monitor() -> Monitor:
    """A run of a minute, whose loss is NaN from step 40 on."""
    monitor = Monitor()
    for step in range(STEPS):
        loss = "nan" if step >= 40 else f"{3 - step / 100:.2f}"
        line = f"step {step}/1000 loss {loss} lr 0.001\n".encode()
        where = Chunk("a.log", (1, 1, 0), step * 100, step + 1, line)
        monitor.feed(where, START + step - 0.5)
    monitor.tick(END)
    return monitor


@dataclass
class Api:
    url: str
    client: Running

    def ask(self, path: str, method: str = "GET", **given: object) -> tuple[int, dict[str, Any]]:
        form = urlencode({name.rstrip("_"): value for name, value in given.items()}, doseq=True)
        path = f"/prometheus/api/v1/{path}"
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if method == "POST":
            answer = self.client.ask(path, "POST", headers, form.encode())
        else:
            answer = self.client.ask(f"{path}?{form}")
        return answer.status, json.loads(answer.body)

    def data(self, path: str, **given: object) -> Any:
        status, body = self.ask(path, **given)
        assert (status, body["status"]) == (200, "success"), body
        return body["data"]


@pytest.fixture
def serve(make_snapshot: Callable[..., Any]) -> Iterator[Callable[..., Api]]:
    servers: list[Server] = []

    def begin(ask: Callable[..., Any]) -> Api:
        snapshot = make_snapshot()
        site = Site(
            snapshot=lambda: snapshot, ready=lambda: True,
            redact=redact, ask=ask,
        )  # fmt: skip
        server = Server("127.0.0.1", 0, site)
        server.start()
        servers.append(server)
        url = f"http://127.0.0.1:{server.port}/prometheus"
        return Api(url, Running(snapshot, port=server.port))

    yield begin
    for server in servers:
        server.stop()


@pytest.fixture
def api(monitor: Monitor, serve: Callable[..., Api]) -> Api:
    return serve(lambda question: question(monitor))


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_query_is_answered_for_now_or_for_a_time(api: Api, method: str) -> None:
    _, now = api.ask("query", method, query="ldlm_train_step")
    assert now["data"]["result"] == [
        {"metric": {"__name__": "ldlm_train_step", "run": "a"}, "value": [END, "59"]}
    ]
    for at in (START + 20, "2026-01-29T10:15:20Z", "2026-01-29T11:15:20+01:00"):
        _, before = api.ask("query", method, query="ldlm_train_step", time=at)
        assert before["data"]["result"][0]["value"] == [START + 20, "20"]


@pytest.mark.parametrize(
    ("query", "kind", "result"),
    [
        ("time()", "scalar", [END, f"{END:.0f}"]),
        ('"a"', "string", [END, "a"]),
        ("vector(1e-9)", "vector", [{"metric": {}, "value": [END, "0.000000001"]}]),
        ("vector(-Inf)", "vector", [{"metric": {}, "value": [END, "-Inf"]}]),
        (
            "ldlm_train_step[10s] offset 30s",
            "matrix",
            [
                {
                    "metric": {"__name__": "ldlm_train_step", "run": "a"},
                    "values": [[START + 20, "20"], [START + 25, "25"]],
                }
            ],
        ),
    ],
)
def test_each_type_of_value_has_its_form(api: Api, query: str, kind: str, result: Any) -> None:
    assert api.data("query", query=query) == {"resultType": kind, "result": result}


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_range_is_answered_step_by_step(api: Api, method: str) -> None:
    asked = {"query": "ldlm_train_loss", "start": START + 30, "end": START + 50, "step": "10s"}
    _, body = api.ask("query_range", method, **asked)
    (series,) = body["data"]["result"]
    assert series["values"] == [[START + 30, "2.7"], [START + 40, "NaN"], [START + 50, "NaN"]]


def test_what_is_older_than_the_store_comes_with_a_warning(api: Api) -> None:
    day = {"query": "ldlm_train_step", "start": START - 86400, "end": END, "step": 3600}
    _, body = api.ask("query_range", **day)
    assert "6 hours" in body["warnings"][0]
    _, body = api.ask("query", query="max_over_time(ldlm_train_step[1d])")
    assert (body["data"]["result"][0]["value"][1], len(body["warnings"])) == ("59", 1)
    assert "warnings" not in api.ask("query", query="ldlm_train_step")[1]


@pytest.mark.parametrize(
    ("path", "given", "problem", "word"),
    [
        ("query", {}, "400 bad_data", 'invalid parameter "query"'),
        ("query", {"query": "sum("}, "400 bad_data", "unclosed"),
        ("query", {"query": "up", "time": "x"}, "400 bad_data", 'invalid parameter "time"'),
        ("query", {"query": "up", "time": "nan"}, "400 bad_data", 'invalid parameter "time"'),
        ("query", {"query": "up", "limit": "-1"}, "400 bad_data", 'invalid parameter "limit"'),
        ("query", {"query": "up * on() up", "timeout": "0s"}, "503 timeout", "timed out"),
        (
            "query",
            {"query": "ldlm_train_step + on() ldlm_run_state"},
            "422 execution",
            "many",
        ),
        ("query_range", {"query": "up", "start": 2, "end": 1, "step": 1}, "400 bad_data", "end"),
        ("query_range", {"query": "up", "start": 1, "end": 2, "step": 0}, "400 bad_data", "zero"),
        (
            "query_range",
            {"query": "up", "start": 0, "end": 11_001, "step": 1},
            "400 bad_data",
            "11,000 points",
        ),
        ("series", {}, "400 bad_data", "no match[]"),
        ("series", {"match[]": "up + up"}, "400 bad_data", "selector"),
        ("rules", {"type": "other"}, "400 bad_data", "type"),
    ],
)
def test_errors_have_the_shape_and_status_of_prometheus(
    api: Api, path: str, given: dict[str, Any], problem: str, word: str
) -> None:
    found, body = api.ask(path, **given)
    assert (f"{found} {body['errorType']}", body["status"]) == (problem, "error")
    assert word in body["error"]


def test_an_answer_has_what_prometheus_says_beside_it(api: Api) -> None:
    _, body = api.ask("query", query="rate(ldlm_train_loss[5m]) or quantile(2, ldlm_train_loss)")
    (info,), (warning,) = body["infos"], body["warnings"]
    assert info.startswith("PromQL info: metric might not be a counter")
    assert info.endswith('"ldlm_train_loss" (1:6)')
    assert warning == "PromQL warning: quantile value should be between 0 and 1, got 2 (1:39)"


def test_a_function_that_prometheus_has_to_switch_on_is_refused(api: Api) -> None:
    status, body = api.ask("query", query="mad_over_time(ldlm_train_loss[5m])")
    assert (status, body["errorType"]) == (400, "bad_data")
    assert "is experimental in Prometheus 3" in body["error"]


def test_series_and_labels_are_found_by_selectors_and_times(api: Api) -> None:
    found = api.data("series", **{"match[]": ["ldlm_train_step", '{__name__=~"ldlm_train_l.+"}']})
    assert {each["__name__"] for each in found} == {
        "ldlm_train_step", "ldlm_train_loss", "ldlm_train_learning_rate",
        "ldlm_train_last_progress_timestamp_seconds",
        "ldlm_train_last_nonfinite_timestamp_seconds",
    }  # fmt: skip
    assert not api.data("series", **{"match[]": "ldlm_train_step", "end": START - 10})
    assert api.data("labels", **{"match[]": "ldlm_train_step"}) == ["__name__", "run"]
    assert {"alertname", "state"} <= set(api.data("labels"))
    assert api.data("label/run/values") == ["a"]
    assert "running" in api.data("label/state/values", **{"match[]": "ldlm_run_state"})
    _, cut = api.ask("label/__name__/values", limit=1)
    assert (len(cut["data"]), cut["warnings"]) == (1, ["results truncated due to limit"])


def test_rules_and_alerts_are_those_that_are_evaluated(api: Api) -> None:
    groups = api.data("rules", **{"rule_name[]": "NonFiniteLoss"})["groups"]
    (rule,) = groups[0]["rules"]
    assert (rule["state"], rule["health"], rule["type"]) == ("firing", "ok", "alerting")
    assert rule["alerts"][0]["labels"]["run"] == "a"
    assert "$labels.run" in rule["annotations"]["summary"]
    firing = [each for each in api.data("alerts")["alerts"] if each["state"] == "firing"]
    (alert,) = [each for each in firing if each["labels"]["alertname"] == "NonFiniteLoss"]
    assert alert == rule["alerts"][0]
    assert datetime.fromisoformat(alert["activeAt"]).timestamp() == START + 39.5
    assert api.data("rules", type="record")["groups"] == []
    (quiet,) = api.data("rules", **{"rule_name[]": "NonFiniteLoss", "exclude_alerts": "true"})[
        "groups"
    ]
    assert quiet["rules"][0]["alerts"] == []


def test_groups_have_the_interval_at_which_their_rules_are_evaluated(
    serve: Callable[..., Api], tmp_path: Path
) -> None:
    groups = "groups: [{name: own, interval: 1m, rules: [%s]}, {name: shared, rules: [%s]}]"
    rule = "{alert: Seen, expr: ldlm_train_step > 0}"
    (tmp_path / "rules.yml").write_text(groups % (rule, rule.replace("Seen", "Also")))
    monitor = Monitor(rules=load_rules([tmp_path / "rules.yml"], parse))
    monitor.tick(END)
    found = serve(lambda question: question(monitor)).data("rules")["groups"]
    assert {each["name"]: each["interval"] for each in found} == {"own": 60, "shared": 5}


def test_an_alert_that_is_kept_firing_says_since_when(
    serve: Callable[..., Api], tmp_path: Path
) -> None:
    path = tmp_path / "rules.yml"
    path.write_text(
        f"groups: [{{name: g, rules: [{{alert: Early, expr: vector(time()) < {START + 10}, "
        "keep_firing_for: 1h}]}]"
    )
    monitor = Monitor(rules=load_rules([path], parse))
    line = Chunk("a.log", (1, 1, 0), 0, 1, b"step 1/1000 loss 3.0 lr 0.001\n")
    monitor.feed(line, START)
    monitor.tick(START + 5)
    api = serve(lambda question: question(monitor))
    assert "keepFiringSince" not in api.data("alerts")["alerts"][0]
    monitor.tick(START + 30)
    (kept,) = api.data("alerts")["alerts"]
    assert datetime.fromisoformat(kept["keepFiringSince"]).timestamp() == START + 10
    assert kept["state"] == "firing"


def test_metrics_are_described_and_clients_see_which_prometheus_this_is(api: Api) -> None:
    loss = api.data("metadata", metric="ldlm_train_loss")["ldlm_train_loss"]
    assert loss[0]["type"] == "gauge"
    assert len(api.data("metadata", limit=3)) == 3
    assert api.data("status/buildinfo")["version"].startswith("3.")
    for method in ("GET", "POST"):  # Grafana posts what it asks
        assert api.ask("query_exemplars", method, query="up")[1]["data"] == []
    assert api.client.ask("/prometheus/-/healthy").status == 200
    assert api.client.ask("/prometheus/-/ready").status == 200


def test_a_busy_monitor_is_unavailable(serve: Callable[..., Api]) -> None:
    def busy(question: object) -> None:
        raise TimeoutError

    status, body = serve(busy).ask("query", query="up")
    assert (status, body["errorType"]) == (503, "unavailable")


def test_no_secret_is_shown_or_can_be_guessed_by_a_matcher(serve: Callable[..., Api]) -> None:
    monitor, secret = Monitor(), "hf_abcdefghijklmnopqrstuvwxyz"
    line = b"step 1/10 loss nan\n"
    monitor.feed(Chunk(f"{secret}.log", (1, 1, 0), 0, 1, line), START)
    monitor.tick(START + 5)
    api = serve(lambda question: question(monitor))
    (found,) = api.data("query", query="ldlm_train_loss")["result"]
    assert "[redacted]" in found["metric"]["run"]
    assert not api.data("query", query='ldlm_train_loss{run=~"hf_a.*"}')["result"]
    assert api.data("query", query='ldlm_train_loss{run=~".*redacted.*"}')["result"]
    for path in ("series?match[]=ldlm_train_loss", "label/run/values", "rules", "alerts"):
        assert secret.encode() not in api.client.ask(f"/prometheus/api/v1/{path}").body
    alerts = {each["labels"]["alertname"]: each for each in api.data("alerts")["alerts"]}
    assert "[redacted]" in alerts["NonFiniteLoss"]["annotations"]["summary"]


@pytest.mark.parametrize(
    "query",
    [
        "up",
        "vector(1)[10d:1ms]",
        "sum_over_time(vector(1)[3650d:1ms])",
        "last_over_time(last_over_time(vector(1)[5m:1ms])[5m:1ms])",
        # The left sides are kept until the innermost right side is there.
        "max_over_time((" + "time()+(" * 150 + "vector(1)" + ")" * 150 + ")[1h:1s])",
        # A label that doubles each time.
        "label_replace(" * 40 + "up" + ",'run','$1$1','run','(.*)')" * 40,
        "label_join(" * 40 + "up" + ",'run','','run','run')" * 40,
        "label_replace(" * 3 + "up" + f",'run','{'$1' * 9000}','run','(.*)')" * 3,
    ],
)
def test_a_query_that_takes_too_much_is_ended(monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    monkeypatch.setattr(bounded_storage, "MAX_VALUES", 50_000)
    monkeypatch.setattr(bounded_storage, "MAX_MADE", 200_000)
    store = SeriesStore(5, 3600)
    store.append([[Point("up", make_labels(run=str(number)), 1.0) for number in range(300)]], 5)
    budget = QueryBudget(math.inf)
    bounded = BoundedStorage(StoreView(store, None, 5), budget)
    expression = parse(query, any_type=True)
    evaluator = Evaluator(bounded, budget=budget)
    is_range = isinstance(expression.root, Subquery)
    ask = instant if is_range else lambda *_, **__: evaluator.over(expression, [5.0] * 200)
    with pytest.raises(QueryError, match="too many"):
        ask(bounded, expression, 5.0, budget=budget)


@pytest.mark.parametrize(
    "query",
    ["up", "rate(up[5m])", "1 + 1", "vector(1)", "sum_over_time(vector(1)[5m:1s])", "time()"],
)
def test_a_query_whose_time_is_up_is_ended_wherever_it_is(query: str) -> None:
    budget = QueryBudget(time.monotonic())
    bounded = BoundedStorage(StoreView(SeriesStore(5, 3600), None, 5), budget)
    with pytest.raises(QueryError, match="timed out"):
        Evaluator(bounded, budget=budget).value(parse(query), 5.0)


def test_the_time_is_asked_for_at_each_window() -> None:
    """A subquery whose every time reads a whole range may take minutes in one node."""
    store = SeriesStore(1, 3600)
    for at in range(100):
        store.append([[Point("loss", (), float(at))]], at)

    class Counting(QueryBudget):
        asked = 0

        def ask(self) -> None:
            self.asked += 1

    budget = Counting(math.inf)
    query = parse("sum_over_time(quantile_over_time(0.9, loss[1m])[90s:1s])")
    (found,) = Evaluator(BoundedStorage(StoreView(store, None, 99), budget), budget=budget)(
        query, 99
    )
    assert found.value == Evaluator(StoreView(store, None, 99))(query, 99)[0].value
    assert budget.asked > 90


def test_a_query_waits_for_its_place_no_longer_than_its_time(
    serve: Callable[..., Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that hold the places here never end."""
    monkeypatch.setattr("ldlm_monitor.service.serve.prometheus.QUERY_SECONDS", 0.1)
    held, done = threading.Semaphore(0), threading.Event()

    def hold(question: object) -> None:
        held.release()
        done.wait()
        raise TimeoutError

    api = serve(hold)
    holding = [threading.Thread(target=api.ask, args=("alerts",)) for _ in range(AT_ONCE)]
    for each in holding:
        each.start()
    for _ in holding:
        held.acquire()
    status, body = api.ask("query", query="up")
    done.set()
    for each in holding:
        each.join()
    assert (status, body["errorType"]) == (503, "timeout")
    assert body["error"] == "query timed out in query queue"


@pytest.mark.parametrize("name", ["query", "match[]"])
def test_an_expression_that_is_too_large_is_refused(api: Api, name: str) -> None:
    path = "query" if name == "query" else "series"
    status, body = api.ask(path, "POST", **{name: "(" * 5_000 + "up" + ")" * 5_000})
    assert (status, body["errorType"]) == (400, "bad_data")
    assert "at most 500 are accepted" in body["error"]


def test_a_view_does_not_change_while_the_store_goes_on() -> None:
    """Another thread appends, and forgets what is old, while the view is read."""
    store = SeriesStore(5, 100)
    labels = [make_labels(run=str(number)) for number in range(20)]

    def scrape(at: float) -> None:
        store.append([[Point("up", each, at)] for each in labels], at)

    for slot in range(1, 21):
        scrape(slot * 5.0)
    view = StoreView(store, None, 100).relabelled(str)
    matchers = (Matcher("__name__", "=", "up"),)

    def read() -> object:
        ranges = [
            (s.labels, [*s.times], [*s.values]) for s in view.reader(matchers).select(0, 1000)
        ]
        return ranges, [*view.reader(matchers).latest(0, 1000)], view.series(0, 1000)

    before = read()
    done = threading.Event()

    def go_on() -> None:
        for slot in range(21, 3000):
            scrape(slot * 5.0)
        done.set()

    thread = threading.Thread(target=go_on)
    thread.start()
    reads = 0
    while not done.is_set() or not reads:
        assert read() == before
        reads += 1
    thread.join()
    assert not StoreView(store, ["down"], 15_000).series(0, 15_000)


def test_values_that_stayed_since_the_last_scrape_are_still_there() -> None:
    """The monitor skips slots in which nothing can have changed."""
    store = SeriesStore(5, 3600)
    store.append([[Point("up", (), 1.0)]], 5)
    view = StoreView(store, ["up"], 907.5)
    assert [*view.reader((Matcher("__name__", "=", "up"),)).latest(600, 907.5)] == [
        ((("__name__", "up"),), 905, 1.0)
    ]
    assert Evaluator(view).value(parse("count_over_time(up[15m])"), 907.5) == [((), 180.0)]


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is missing"
)
def test_promtool_asks_the_monitor(api: Api) -> None:
    def query(*words: str) -> str:
        asked = ["promtool", "query", *words]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    at = f"--time={START + 20:.0f}"
    assert query("instant", at, api.url, "ldlm_train_step") == (
        f'ldlm_train_step{{run="a"}} => 20 @[{START + 20:.0f}]'
    )
    span = (f"--start={START:.0f}", f"--end={START + 20:.0f}", "--step=10s")
    assert query("range", *span, api.url, "max(ldlm_train_step)") == (
        f"{{}} =>\n0 @[{START:.0f}]\n10 @[{START + 10:.0f}]\n20 @[{START + 20:.0f}]"
    )
    match = '--match=ldlm_run_state{state="running"}'
    assert query("series", match, f"--start={START:.0f}", f"--end={END:.0f}", api.url) == (
        '{__name__="ldlm_run_state", run="a", state="running"}'
    )
    assert query("labels", f"--start={START:.0f}", f"--end={END:.0f}", api.url, "run") == "a"


def test_client_libraries_ask_the_monitor(api: Api) -> None:
    from aiopromql import PrometheusAsync
    from prometheus_api_client import PrometheusConnect

    first = PrometheusConnect(url=api.url)
    assert first.check_prometheus_connection()
    assert "ldlm_train_loss" in first.all_metrics()
    assert first.get_label_values("run") == ["a"]
    (found,) = first.custom_query("ldlm_train_step", {"time": START + 20})
    assert found["value"] == [START + 20, "20"]
    begin, end = (datetime.fromtimestamp(at, UTC) for at in (START, START + 20))
    (found,) = first.custom_query_range("ldlm_train_step", begin, end, "10")
    assert [value for _, value in found["values"]] == ["0", "10", "20"]
    first._session.close()

    async def second() -> tuple[Any, Any]:
        async with PrometheusAsync(api.url) as client:
            now = await client.query("ldlm_train_step")
            return now, await client.query_range("ldlm_train_step", begin, end, "10s")

    now, over = asyncio.run(second())
    assert [each.value for each in now.data.result] == [(END, "59")]
    (series,) = over.to_metric_map().values()
    assert [point.value for point in series.values] == [0.0, 10.0, 20.0]


def board_queries() -> Iterator[str]:
    """Each query of each board, with variables as Grafana fills them."""
    values = {"$__rate_interval": "15s", "$__range": "5m"}
    for path in sorted((ROOT / "dashboards").glob("*.json")):
        board = json.loads(path.read_text("utf-8"))
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                query = target["expr"]
                for name, value in values.items():
                    query = query.replace(name, value)
                for name in ("cluster", "rank", "job", "instance", "run"):
                    query = query.replace(f"${name}", ".*")
                yield query


def test_every_query_of_the_boards_is_answered(api: Api) -> None:
    span = {"start": START, "end": END, "step": 15}
    queries = [*board_queries()]
    answers = [api.data("query_range", query=query, **span) for query in queries]
    answered = sum(bool(each["result"]) for each in answers)
    assert len(queries) > 50
    assert answered > len(queries) / 3, [q for q, a in zip(queries, answers, strict=True) if not a]


def test_a_monitor_that_has_read_nothing_answers_for_now(serve: Callable[..., Api]) -> None:
    api = serve(lambda question: question(Monitor()))
    before = time.time()
    at, value = api.data("query", query="1")["result"]
    assert (value, before - 1 < at < time.time() + 1) == ("1", True)
