"""Prometheus' HTTP API over the embedded store, below `/prometheus`.

https://prometheus.io/docs/prometheus/latest/querying/api/. A question is answered in three parts:
the pump's thread gives a view of the metrics that it reads, between two turns; a thread of the
server redacts the labels' values, so that no matcher can guess what is hidden; and evaluates.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ldlm_monitor import __version__
from ldlm_monitor.base import names
from ldlm_monitor.base.errors import RuleError, UsageError
from ldlm_monitor.base.points import Labels
from ldlm_monitor.base.text.format import iso
from ldlm_monitor.base.text.sanitize import jsonable
from ldlm_monitor.judge.core.exported_metrics import METRICS
from ldlm_monitor.service.serve.bounded_storage import QUERY_SECONDS, BoundedStorage, QueryBudget
from ldlm_monitor.service.serve.prometheus_rules import active_alerts, groups
from ldlm_monitor.service.serve.request_parameters import Parameters, QueryError
from ldlm_promrules.promql import Expression, parse
from ldlm_promrules.promql.annotations import INFO, Notes
from ldlm_promrules.promql.expression import settles_after
from ldlm_promrules.promql.nodes import Selector
from ldlm_promrules.query_answers import MAX_STEPS, instant, metrics_of, over
from ldlm_promrules.series.store_view import StoreView

if TYPE_CHECKING:
    from ldlm_monitor.judge.core.monitor import Monitor
    from ldlm_monitor.judge.core.rule_engine import JudgedRule

PREFIX = "/prometheus"  # as Mimir has it: the path beside it may have other shapes
AT_ONCE = 2
"""Queries that are evaluated at once, the others wait. A choice: Python runs one thread at a time,
and so the judging of logs keeps a third of it."""
_ACCEPTED = "3.0.0"
"""The version of Prometheus whose API and PromQL these are: clients decide by it what to ask."""
_BUSY = "the monitor is still reading its logs, or busy; ask again"
_STATUS = {"bad_data": 400, "execution": 422, "timeout": 503, "unavailable": 503}

_T = TypeVar("_T")
Answer: TypeAlias = tuple[Any, list[str]]
"""The `data` of an answer, and its warnings."""
Handler: TypeAlias = Callable[[Parameters], Answer]


class Asking(Protocol):
    """Has a question about the monitor answered in the thread that changes it.

    Raises `TimeoutError` if that thread does not come to it, as while it reads what logs hold.
    """

    def __call__(self, read: Callable[[Monitor], _T]) -> _T:
        """What `question` returns."""


class PrometheusApi:
    """The handlers. `redact` is applied to labels' values, and to texts of rules and alerts.

    `experimental`: as of `parse`.
    """

    def __init__(
        self, ask: Asking, redact: Callable[[str], str], *, experimental: bool = False
    ) -> None:
        self._ask = ask
        self._redact = redact
        self._parse = partial(parse, any_type=True, experimental=experimental)
        self._places = asyncio.Semaphore(AT_ONCE)

    def routes(self) -> list[Route]:
        """A route for each path; those with long parameters may be posted as a form."""
        posted: dict[str, Handler] = {
            "query": self._query, "query_range": self._query_range,
            "series": self._series, "labels": self._label_names,
            "query_exemplars": lambda _: ([], []),  # none are stored; Grafana asks for them
        }  # fmt: skip
        only_read: dict[str, Handler] = {
            "label/{name:path}/values": self._label_values,
            "metadata": _metadata,
            "rules": self._rules,
            "alerts": self._alerts,
            "status/buildinfo": _build_info,
        }
        return [
            Route(f"{PREFIX}/api/v1/{path}", self._endpoint(handler), methods=methods)
            for methods, handlers in ((["GET", "POST"], posted), (["GET"], only_read))
            for path, handler in handlers.items()
        ]

    def query(self, given: Mapping[str, str]) -> dict[str, Any]:
        """`data`, and `warnings` if any, of a query (with `start`: a range). Raises UsageError."""
        until = time.monotonic() + QUERY_SECONDS
        parameters = Parameters({name: [value] for name, value in given.items()}, {}, until)
        try:
            answer = self._query_range if "start" in given else self._query
            data, warnings = answer(parameters)
        except QueryError as problem:
            raise UsageError(str(problem), where="query") from None
        except TimeoutError:
            raise UsageError(_BUSY, where="query") from None
        return {"data": data, **said_beside(warnings)}

    def _endpoint(self, handler: Handler) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            # As in Prometheus, the time in the queue counts, so that nothing waits behind many.
            until = time.monotonic() + QUERY_SECONDS
            try:
                async with asyncio.timeout(QUERY_SECONDS):
                    await self._places.acquire()
            except TimeoutError:
                return _failed(QueryError("query timed out in query queue", "timeout"))
            try:
                return await run_in_threadpool(self._answered, handler, request, until)
            finally:
                self._places.release()

        return endpoint

    def _answered(self, handler: Handler, request: Request, until: float) -> Response:
        try:
            data, warnings = handler(Parameters.of(request, until))
        except QueryError as problem:
            return _failed(problem)
        except TimeoutError:
            return _failed(QueryError(_BUSY, "unavailable"))
        return _json({"status": "success", "data": data, **said_beside(warnings)}, 200)

    def _view(self, metrics: Iterable[str] | None) -> StoreView:
        view = self._ask(lambda monitor: monitor.engine.view(metrics, monitor.clock))
        return view.relabelled(self._redact)

    def _query(self, given: Parameters) -> Answer:
        budget = _budget(given)
        expression = _parsed("query", given.text("query"), self._parse, budget)
        view = self._view(metrics_of(expression))
        now = view.until if math.isfinite(view.until) else time.time()  # nothing was read yet
        at = given.time("time", now)
        evaluate = partial(instant, expression=expression, at=at)
        return _evaluated(evaluate, view, given, budget, expression=expression, start=at)

    def _query_range(self, given: Parameters) -> Answer:
        start, end = given.time("start"), given.time("end")
        step = given.duration("step")
        if end < start:
            given.refuse("end", "end timestamp must not be before start time")
        if step <= 0:
            given.refuse(
                "step", "zero or negative query resolution step widths are not accepted. "
                "Try a positive integer",
            )  # fmt: skip
        if (end - start) / step > MAX_STEPS:
            raise QueryError(
                f"exceeded maximum resolution of {MAX_STEPS:,} points per timeseries. "
                "Try decreasing the query resolution (?step=XX)"
            )
        budget = _budget(given)
        expression = _parsed("query", given.text("query"), self._parse, budget)
        view = self._view(metrics_of(expression))
        evaluate = partial(over, expression=expression, start=start, end=end, step=step)
        return _evaluated(evaluate, view, given, budget, expression=expression, start=start)

    def _series(self, given: Parameters) -> Answer:
        if not given.all("match[]"):
            raise QueryError("no match[] parameter provided")
        return _cut([dict(labels) for labels in self._matching(given)], given, [])

    def _label_names(self, given: Parameters) -> Answer:
        found = {name for labels in self._matching(given) for name, _ in labels}
        return _cut(sorted(found), given, [])

    def _label_values(self, given: Parameters) -> Answer:
        name = given.path["name"]
        found = {value for labels in self._matching(given) for key, value in labels if key == name}
        return _cut(sorted(found), given, [])

    def _matching(self, given: Parameters) -> Sequence[Labels]:
        """The series between `start` and `end` that one of the selectors `match[]` selects."""
        start, end = given.time("start", -math.inf), given.time("end", math.inf)
        budget = _budget(given)
        selectors = [_selector(text, budget) for text in given.all("match[]")]
        named = [metrics_of(each) for each in selectors]
        metrics = {name for each in named for name in each or ()}
        view = self._view(metrics if named and None not in named else None)
        matchers = [each.root.matchers for each in selectors if isinstance(each.root, Selector)]
        return view.series(start, end, matchers, budget.ask)

    def _rules(self, given: Parameters) -> Answer:
        def judged(monitor: Monitor) -> tuple[list[JudgedRule], float, float]:
            return monitor.engine.judged(), monitor.clock, monitor.engine.interval

        rules, at, interval = self._ask(judged)
        kinds = {"alert": ("alerting",), "record": ("recording",), "": ("alerting", "recording")}
        kind = given.text("type", "")
        if kind not in kinds:
            given.refuse("type", f"not supported value {kind!r}")
        wanted = {"name": given.all("rule_name[]"), "group": given.all("rule_group[]")}
        found = groups(
            rules, kinds[kind], wanted | {"file": given.all("file[]")}, at, interval,
            with_alerts=given.text("exclude_alerts", "") not in ("1", "true"),
        )  # fmt: skip
        return self._shown({"groups": found}), []

    def _alerts(self, given: Parameters) -> Answer:
        rules = self._ask(lambda monitor: monitor.engine.judged())
        return self._shown({"alerts": [each for rule in rules for each in active_alerts(rule)]}), []

    def _shown(self, document: dict[str, Any]) -> object:
        return jsonable(document, self._redact)


def _failed(problem: QueryError) -> Response:
    body = {"status": "error", "errorType": problem.kind, "error": str(problem)}
    return _json(body, _STATUS[problem.kind])


def _json(body: Mapping[str, Any], status: int) -> Response:
    return Response(json.dumps(body, allow_nan=False), status, media_type="application/json")


def said_beside(notes: list[str]) -> dict[str, list[str]]:
    """`warnings` and `infos` of an answer, as Prometheus has them; neither without any."""
    infos = [note for note in notes if note.startswith(INFO)]
    kinds = {"warnings": [note for note in notes if note not in infos], "infos": infos}
    return {name: found for name, found in kinds.items() if found}


def _evaluated(
    evaluate: Callable[..., dict[str, Any]],
    view: StoreView,
    given: Parameters,
    budget: QueryBudget,
    *,
    expression: Expression,
    start: float,
) -> Answer:
    notes = Notes()
    try:
        data = evaluate(BoundedStorage(view, budget), notes=notes, budget=budget)
    except RuleError as problem:
        raise QueryError(str(problem), "execution") from None
    warnings = [*notes.lines(expression), *_too_old(expression, view, start)]
    if data["resultType"] in ("scalar", "string"):
        return data, warnings
    result, warnings = _cut(data["result"], given, warnings)
    return data | {"result": result}, warnings


def _budget(given: Parameters) -> QueryBudget:
    earlier = QUERY_SECONDS - min(given.duration("timeout", QUERY_SECONDS), QUERY_SECONDS)
    return QueryBudget(given.until - earlier)


def _parsed(
    name: str, text: str, read: Callable[..., Expression], budget: QueryBudget
) -> Expression:
    budget.ask()
    try:
        return read(text, ask=budget.ask)
    except RuleError as problem:
        raise QueryError(f'invalid parameter "{name}": {problem}') from None


def _selector(text: str, budget: QueryBudget) -> Expression:
    expression = _parsed("match[]", text, parse, budget)
    if not isinstance(expression.root, Selector):
        raise QueryError('invalid parameter "match[]": it must be an instant vector selector')
    return expression


def _too_old(expression: Expression, view: StoreView, start: float) -> list[str]:
    reach = settles_after(expression, names.PAST_TIMES)
    if math.isinf(reach) or start - reach >= view.oldest - 1:
        return []
    hours = view.retention / 3600
    return [f"samples are kept for {hours:g} hours: earlier than {iso(view.oldest)} some are gone"]


def _cut(found: list[Any], given: Parameters, warnings: list[str]) -> Answer:
    limit = given.count("limit")
    if limit and len(found) > limit:
        return found[:limit], [*warnings, "results truncated due to limit"]
    return found, warnings


def _metadata(given: Parameters) -> Answer:
    wanted, limit = given.text("metric", ""), given.count("limit")
    found = {
        name: [{"type": each.kind, "help": each.help, "unit": ""}]
        for name, each in METRICS.items()
        if wanted in ("", name)
    }
    return dict([*found.items()][: limit or None]), []


def _build_info(_: Parameters) -> Answer:
    ours = f"ldlm-monitor {__version__}"
    unknown = {"branch": "", "buildUser": "", "buildDate": "", "goVersion": ""}
    return {"version": _ACCEPTED, "revision": ours, **unknown}, []
