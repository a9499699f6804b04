"""The answers for agents: each bounded, and each fact with the file and line that shows it.

Text that a log decides is under the key `untrusted`, sanitised and redacted.
"""

import math
import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, TypeAlias

from ldlm_monitor.base.errors import InputError
from ldlm_monitor.base.queries import MAX_POINTS, LogQuery, Source, visible
from ldlm_monitor.base.snapshot import CurveView, RunView
from ldlm_monitor.base.text.sanitize import plain, redact
from ldlm_monitor.service.mcp import cited_facts
from ldlm_monitor.service.mcp.awaited import LOOK_SECONDS, Until, awaited, timed_out

MOST_LINES = 20  # of a log, before and after the place
MOST_SECONDS = 50.0
"""Longest wait of one answer. A choice: below the minute after which clients give up."""

Queried: TypeAlias = Callable[[dict[str, str]], dict[str, Any]]
"""Answers Prometheus' `query` (with `start`, `query_range`): `data`, and `warnings` if any."""


class Tools:
    """The tools; each method is one, and its docstring is what agents read about it.

    Raises `UsageError` for what cannot be answered. `query` answers PromQL.
    """

    def __init__(self, source: Source, query: Queried) -> None:
        self._source = source
        self._query = query

    def runs(self, run: str = "") -> str:
        """Every training run (or one): state, health and why, last step, files to cite or read.

        `cite` is the file and line of its last value.
        """
        found = cited_facts.few([self._run(each) for each in self._runs(run)])
        unjudged = self._source.snapshot().unjudged()
        return cited_facts.text(**({"reading": unjudged} if unjudged else {}), runs=found)

    def incidents(self, run: str = "") -> str:
        """Failures, the newest first: the first cause, how sure that is and why, and evidence."""
        found = [each for each in self._source.snapshot().incidents if run in ("", each.run)]
        return cited_facts.text(
            incidents=cited_facts.few([cited_facts.incident(each) for each in reversed(found)])
        )

    def alerts(self, run: str = "") -> str:
        """Alerts that are pending or firing now, and how past ones changed, the newest first."""
        snapshot = self._source.snapshot()
        now = [
            cited_facts.alert(each)
            for each in snapshot.alerts
            if cited_facts.is_of(run, each.labels)
        ]
        past = [
            cited_facts.transition(each)
            for each in snapshot.transitions
            if cited_facts.is_of(run, each.labels)
        ]
        return cited_facts.text(now=cited_facts.few(now), changes=cited_facts.few(past[::-1]))

    def events(self, run: str = "", kind: str = "") -> str:
        """What logs reported (errors, checkpoints, evaluations), the newest first."""
        found = [
            cited_facts.event(each)
            for each in self._source.snapshot().events
            if run in ("", each.run) and kind in ("", each.kind)
        ]
        return cited_facts.text(events=cited_facts.few(found[::-1]))

    def values(
        self, run: str, quantity: str = "loss", start: int | None = None, end: int | None = None,
        points: int = cited_facts.MOST,
    ) -> str:  # fmt: skip
        """A quantity (loss, grad_norm, learning_rate, step_seconds, ...) over steps start to end.

        Each entry is a step or a stretch that begins there: its value, or mean, lowest and highest.
        `recent` sums up the last values; of some quantities nothing else is kept.
        """
        curve = self._curve(run, quantity, start, end, max(1, min(points, cited_facts.MOST)))
        (view,) = self._runs(run)
        known, whole = view.statistics.get(quantity), None
        if known is not None:
            whole = {"last": known.current, "mean": known.mean, "nonfinite": known.nonfinite}
            whole |= {"low": known.minimum, "high": known.maximum}
        rows = [] if curve is None else cited_facts.values(curve)
        return cited_facts.text(run=run, quantity=quantity, values=rows, recent=whole)

    def compare(self, baseline: str, candidate: str, quantity: str = "loss") -> str:
        """A quantity of two runs at equal steps, and the change as a share of the baseline."""
        first, second = (self._curve(each, quantity, None, None) for each in (baseline, candidate))
        if first is None or second is None:
            raise InputError("has no curve of both runs", where=quantity[: cited_facts.TEXT])
        ours = {step: index for index, step in enumerate(second.steps)}
        shared = [(i, ours[step]) for i, step in enumerate(first.steps) if step in ours]
        rows = []
        for i, j in shared[:: -(-len(shared) // cited_facts.MOST) or 1]:
            before, after = cited_facts.short(first.means[i]), cited_facts.short(second.means[j])
            rows.append(
                {"step": first.steps[i], "baseline": before, "candidate": after}
                | ({"change": round(after / before - 1, 4)} if before else {})
                | {
                    "cite": [
                        cited_facts.cite(first.position(i)),
                        cited_facts.cite(second.position(j)),
                    ]
                }
            )
        return cited_facts.text(
            quantity=quantity, baseline=baseline, candidate=candidate, steps=rows
        )

    def query(
        self, expression: str, time: str = "", start: str = "", end: str = "", step: str = ""
    ) -> str:
        """PromQL over the monitor's metrics (ldlm_train_loss, ldlm_run_health, ...).

        At `time` (default: now), or every `step` from `start` to `end`; times are Unix seconds or
        RFC 3339. `cite`: the line of the run's last value at that time.
        """
        given = {
            "time": time,
            "start": start,
            "end": end,
            "step": step,
            "limit": str(cited_facts.MOST),
        }
        answer = self._query({"query": expression} | {k: v for k, v in given.items() if v})
        result = answer["data"]["result"]
        for each in result if answer["data"]["resultType"] in ("vector", "matrix") else ():
            values = each.get("values", [each.get("value")])
            if "values" in each:
                each["values"] = values[-cited_facts.MOST :]
            if (
                cite := self._place(each["metric"].get("run", ""), float(values[-1][0]))
            ) is not None:
                each["cite"] = cite
        return cited_facts.text(**answer)

    def log(
        self, path: str, line: int | None = None, find: str = "", before: int = 3, after: int = 3
    ) -> str:
        """Lines of a followed log around line `line`, or around the first that contains `find`.

        Without both, its last lines. Paths are those of `runs`.
        """
        asked = LogQuery(
            path=path, at=0 if find else None, at_line=line, find=find, bars=line is not None,
            before=max(0, min(before, MOST_LINES)), after=max(0, min(after, MOST_LINES)),
        )  # fmt: skip
        found = visible(self._source, asked, redact)
        if find and found.found is None:
            raise InputError("is not in this log", where=find[: cited_facts.TEXT])
        lines = [
            {"cite": f"{redact(path)}:{each.line}", "untrusted": plain(each.text, cited_facts.TEXT)}
            for each in found.lines
        ]
        return cited_facts.text(lines=lines)

    def wait_for(
        self, run: str = "", until: str = "decision", seconds: float = MOST_SECONDS
    ) -> str:
        """Waits until a run (default: any) needs a decision; answers at once if it does already.

        `until`: decision, alert, finished or step=N; a decision ends each of them. What came is
        `what`: one of these, `ended` (it did not finish), or `timeout` after `seconds`.
        """
        wanted, bound = Until.read(until), max(0.0, min(seconds, MOST_SECONDS))
        began = time.monotonic()
        while (came := awaited(self._source.snapshot(), run, wanted)) is None:
            if (waited := time.monotonic() - began) >= bound:
                came = timed_out(self._source.snapshot(), run, bound)
                break
            time.sleep(min(LOOK_SECONDS, bound - waited))
        return cited_facts.text(**came.answer)

    def changes(self, since: float) -> str:
        """What changed since a time (Unix seconds): alerts, events, incidents. `at` is now.

        Events whose log has no times are always among them.
        """
        snapshot = self._source.snapshot()
        events = [each for each in snapshot.events if each.time is None or each.time > since]
        alerts = [each for each in snapshot.transitions if each.time is None or each.time > since]
        incidents = [each for each in snapshot.incidents if each.updated_at > since]
        return cited_facts.text(
            at=snapshot.at,
            alerts=cited_facts.few([cited_facts.transition(each) for each in alerts[::-1]]),
            events=cited_facts.few([cited_facts.event(each) for each in events[::-1]]),
            incidents=cited_facts.few([cited_facts.incident(each) for each in incidents[::-1]]),
        )

    def _runs(self, run: str) -> list[RunView]:
        found = [each for each in self._source.snapshot().runs if run in ("", each.name)]
        if not found and run:
            raise InputError(
                "is no run", where=run[: cited_facts.TEXT], remedy="the tool runs lists them"
            )
        return found

    def _run(self, run: RunView) -> dict[str, Any]:
        reasons = [plain(each.text, cited_facts.TEXT) for each in run.reasons[:3]]
        return {
            "run": plain(run.name),
            "state": run.state,
            "health": run.health,
            "step": run.step,
            "total_steps": run.total_steps,
            "failed_rank": run.failed_rank,
            "files": [redact(path) for path in run.files[: cited_facts.MOST]],
            "cite": self._place(run.name, math.inf),
            "untrusted": reasons,
        }

    def _curve(
        self, run: str, quantity: str, start: int | None, end: int | None, points: int = MAX_POINTS
    ) -> CurveView | None:
        curve = self._source.series(run, quantity, start, end, points)
        names = self._runs(run)[0].statistics
        if curve is None and quantity not in names:
            known = f"it has {', '.join(names)}"
            raise InputError(f"run {run} has no {quantity}"[: cited_facts.TEXT], remedy=known)
        return curve

    def _place(self, run: str, at: float) -> str | None:
        """File and line of the run's last value at a time, or of its last event; None if none."""
        views = [each for each in self._source.snapshot().runs if each.name == run]
        names = views[0].statistics if views else ()
        for quantity in sorted(names, key=lambda name: name != "loss")[:1]:
            curve = self._source.series(run, quantity, None, None, MAX_POINTS)
            if curve is not None and len(curve.times):
                return cited_facts.cite(curve.position(max(bisect_right(curve.times, at) - 1, 0)))
        events = self._source.snapshot().events
        return next(
            (cited_facts.cite(each.position) for each in reversed(events) if each.run == run), None
        )
