"""Writes the parts of pages that come from code: `python docs/generate.py`.

`metrics.md` and the schemas whole, the list of checks in `doctor.md`, the tables in `promql.md`,
`configuration.md` and `decisions.md`, and the head of each page in `runbook/`; what stands below a
head is written by people, and kept.
"""

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / each) for each in ("monitor", "callback", "doctor", "promrules")]

from ldlm_doctor.model import Check, checks  # noqa: E402 # it need not be installed
from ldlm_monitor.base.names import RUN_STATES, SEVERITIES, Metric  # noqa: E402
from ldlm_monitor.base.setting_types import Section  # noqa: E402
from ldlm_monitor.base.snapshot import Snapshot  # noqa: E402
from ldlm_monitor.finished.compare.comparison import Comparison  # noqa: E402
from ldlm_monitor.finished.report.document import Report  # noqa: E402
from ldlm_monitor.judge.core.exported_metrics import METRICS  # noqa: E402
from ldlm_monitor.judge.run.run_states import MOVES, PHASES, TRAINS  # noqa: E402
from ldlm_monitor.records import adapter  # noqa: E402
from ldlm_monitor.service.cli.flags import FollowFlags  # noqa: E402
from ldlm_monitor.service.config import Settings  # noqa: E402
from ldlm_monitor.service.notify.webhook import WebhookBody  # noqa: E402
from ldlm_monitor.service.serve.openapi import Spelled  # noqa: E402
from ldlm_promrules.promql.expression_parser import EXPERIMENTAL, MAX_DEPTH  # noqa: E402
from ldlm_promrules.promql.expression_text import MAX_OPERATORS  # noqa: E402
from ldlm_promrules.promql.floats import ARITHMETIC, COMPARISON  # noqa: E402
from ldlm_promrules.promql.functions import ELEMENTWISE, OVER_VECTOR  # noqa: E402
from ldlm_promrules.promql.operators import AGGREGATIONS, SET_OPERATORS  # noqa: E402
from ldlm_promrules.promql.ranges import OVER_RANGE  # noqa: E402
from ldlm_promrules.promql.special import SPECIAL  # noqa: E402

PAGES = ROOT / "docs"
PACKS = ("default.yml", "fleet.yml")
BY_HAND = "<!-- Above and in the last section: made by docs/generate.py of the rule. -->\n"
RULE = "\n## The rule\n"
SECTIONS = "\n## Meaning\n\n## Why\n\n## What to do\n"
TEMPLATES = re.compile(r"{{ *with .*?{{ *end *}}|{{.*?}}")
CHECKS = "<!-- checks -->", "<!-- end of checks -->"  # in doctor.md
TABLES = "<!-- tables -->", "<!-- end of tables -->"  # in promql.md
STATES = "<!-- states -->", "<!-- end of states -->"  # in decisions.md
SETTINGS = "<!-- settings -->", "<!-- end of settings -->"  # in configuration.md
FLAGS = {field.name: f"`--{field.name.replace('_', '-')}`" for field in fields(FollowFlags)} | {
    "files": "`FILE_OR_GLOB...`",
    "companions": "`--no-companions`",
    "join": "`--no-join`",
}
GROUPS = (
    ("Training", "ldlm_train_", "What the trainer logs. `rank`: where a rank reported the value."),
    ("Goodput", "ldlm_goodput_", "Of one run, over its attempts, up to its last step or its end."),
    ("GPUs", "ldlm_gpu_", "`gpu`: its number, or its `rank`'s."),
    ("Runs", "ldlm_run_", "One run, whatever its ranks."),
    ("Events and alerts", "ldlm_(events|last|alerts|eval)", "Counted by kind; pending and firing."),
    ("Detectors", "ldlm_detect_", "A run against its own past, a rank against the others."),
    ("The monitor itself", "ldlm_(monitor|build)_", "Whether it reads, judges and delivers."),
)  # fmt: skip

OTLP = """## OTLP

For a backend that is not Prometheus, with the extra `otlp`:

```toml
[otlp]
endpoint = "http://127.0.0.1:4318" # a collector's OTLP over HTTP
```

Each minute (`interval_seconds`) a push has the metrics above, under the same names and without \
units: gauges, cumulative sums that begin at their `_created` where there is one, explicit \
histograms. A failed push is not repeated; the next one has the same counters. For 800 runs it \
is 2.2 MB and takes 0.7 s of CPU.

An incident is two log records, `event_name` `ldlm.incident`: one when it opens, one at its end \
(`ldlm.state` `open`, `resolved` or `ended`; `ldlm.incident` is its id). The title is the body, \
the severity that of its worst alert, `FATAL` for critical; attributes `ldlm.*` have run, rank, \
step, cause, why, what to do, and `log.file.path` the log. Records wait on disk until the \
collector has accepted them, as every message does: at least once, also through `kill -9`. A \
dead collector delays nothing else; a silence whose matchers fit the run holds its incidents \
back.

Headers, certificates, compression and time limit are those of OpenTelemetry's own variables, \
such as `OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20..."`. `external_labels`, \
`service.instance.id` (the monitor's address) and `host.name` are attributes of the resource. \
`ldlm-monitor notify test` sends a record.
"""
ADVICE = (  # what Prometheus' pages on names and instrumentation advise, and what is done
    ("base units, `_total`, ratios from 0 to 1", "each; a test asks `promtool check metrics`"),
    ("no timestamps, one consistent scrape", "each scrape is made of one snapshot"),
    (
        "counters exist at 0",
        (
            "each that a rule reads over time: `ldlm_run_restarts_total`, those of the monitor and "
            "of each receiver; `ldlm_train_skipped_steps_total`, and "
            "`ldlm_train_nonfinite_total` of loss and gradient norm"
        ),
    ),
    (
        "also where nobody knows the labels before",
        (
            "no: `ldlm_events_total` begins with the first event of a kind, severity and rank, as "
            "some sixty kinds at 0 would more than double a scrape; with `_created` in "
            "OpenMetrics, from "
            "which Prometheus 3 makes the 0 (`created-timestamp-zero-ingestion`). So do NaN of a "
            "rank or of another quantity. Boards add what began within the time that they show"
        ),
    ),
    (
        "timestamps, not times since",
        (
            "`ldlm_last_event_timestamp_seconds`, "
            "`ldlm_train_last_nonfinite_timestamp_seconds`: what rules ask instead of "
            "`increase()` of such counters. It holds also where the first scrape came after the "
            "event, and the history of an old log is no news"
        ),
    ),
    (
        "histograms for durations",
        (
            "steps, evaluations, deliveries: classic, with fixed buckets, and in the protobuf "
            "format native ones of schema 3, whose buckets are 9 % wide (a Prometheus with "
            "`--enable-feature=native-histograms`, or in 3 `scrape_native_histograms: true`)"
        ),
    ),
    (
        "the sum or the average of a metric means something",
        (
            "but of `ldlm_train_metric`, whose `name` is any key of a log: names of metrics "
            "would be made of log text"
        ),
    ),
    (
        "attempts and failures as two metrics",
        "no: `ldlm_monitor_notifications_total` has them by `outcome`",
    ),
    ("joules rather than watts", "no: logs and drivers give watts"),
    ("`_info` series, `build_info`", "`ldlm_run_info`, `ldlm_build_info`"),
    ("the process itself", "`process_*` on Linux, in scrapes alone: rules here do not see them"),
    (
        "a small scrape",
        (
            "whole numbers without a fraction: 800 runs are 2.5 MB of text, 0.15 MB as gzip. "
            "Restarts and `_created` make a scrape 2 % larger, the histogram of steps 8 %: it has "
            "one classic bound, 1 s (`benchmarks/scrape.py`)"
        ),
    ),
    ("few values of labels", "cut to 128 characters; of a rank at most 200 quantities"),
)


def rules(pack: str) -> Iterator[dict[str, Any]]:
    """The rules of a file of rules/, in their order."""
    for group in yaml.safe_load((ROOT / "rules" / pack).read_text("utf-8"))["groups"]:
        yield from group["rules"]


def alerts() -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """By name, the rules that raise it, each with its file."""
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for pack in PACKS:
        for rule in rules(pack):
            if "alert" in rule:
                found.setdefault(rule["alert"], []).append((pack, rule))
    return found


def said(rule: dict[str, Any], annotation: str) -> str:
    """An annotation without what differs from case to case."""
    text = TEMPLATES.sub(
        lambda found: "" if "with" in found[0] else "N", rule["annotations"][annotation]
    )
    return " ".join(text.split())


def head(name: str, raised_by: list[tuple[str, dict[str, Any]]]) -> str:
    """What a page begins with: what the alert says itself."""
    severity = raised_by[0][1]["labels"]["severity"]
    parts = [f"# {name}", f"Severity: **{severity}**"]
    for _, rule in raised_by:
        parts += [said(rule, "description"), f"> {said(rule, 'action')}"]
    return "\n\n".join(dict.fromkeys(parts)) + "\n\n" + BY_HAND


def tail(raised_by: list[tuple[str, dict[str, Any]]]) -> str:
    """What a page ends with: when exactly it fires."""
    parts = [RULE]
    for pack, rule in raised_by:
        wait = f", for {rule['for']}" if "for" in rule else ""
        parts.append(f"It fires while this holds{wait} (`rules/{pack}`):\n")
        parts.append(f"```promql\n{rule['expr'].strip()}\n```\n")
    return "\n".join(parts)


def runbook() -> dict[str, str]:
    """Each page by its name; a page that is not there yet gets empty sections."""
    pages = {}
    for name, raised_by in alerts().items():
        path = PAGES / "runbook" / f"{name}.md"
        there = path.read_text("utf-8") if path.is_file() else BY_HAND + SECTIONS
        by_hand = there.partition(BY_HAND)[2].partition(RULE)[0]
        pages[f"runbook/{name}.md"] = head(name, raised_by) + by_hand + tail(raised_by)
    return pages


def contents() -> str:
    """The runbook's first page: all alerts, the worst first."""
    order = ("critical", "error", "warning", "info", "none")
    rows = []
    for name, ((pack, rule), *_) in alerts().items():
        severity = rule["labels"]["severity"]
        row = f"| [{name}]({name}.md) | {severity} | {pack} | {said(rule, 'description')} |"
        rows.append((order.index(severity), row))
    lines = [row for _, row in sorted(rows, key=lambda each: each[0])]
    table = "\n".join(["| alert | severity | file | |", "| --- | --- | --- | --- |", *lines])
    return (
        "# Runbook\n\nA page for each alert: what it means, why it may fire, what to do. Made of "
        f"the rules by `python docs/generate.py`.\n\n{table}\n"
    )


def labels(metric: Metric) -> str:
    """As they stand in braces."""
    own = [] if metric.name.startswith(("ldlm_monitor_", "ldlm_build_")) else ["run"]
    own += ["le"] if metric.kind == "histogram" else []
    return ", ".join(f"`{label}`" for label in (*own, *metric.labels))


def metrics() -> str:
    """The reference of all series that the monitor exports, and of those that are recorded."""
    about = (
        "What `/metrics` serves, made by `python docs/generate.py`. Units are base "
        "units; NaN and infinities are exported. A run's series stay for a quarter of an hour "
        "after its end (`end_series_after_seconds`).\n"
    )
    parts = ["# Metrics\n", about]
    left = dict(METRICS)
    for title, prefix, meaning in GROUPS:
        of_group = [left.pop(name) for name in METRICS if name in left and re.match(prefix, name)]
        parts += [f"## {title}\n", f"{meaning}\n", "| metric | type | labels | |"]
        parts.append("| --- | --- | --- | --- |")
        parts += [
            f"| `{each.name}` | {each.kind} | {labels(each)} | {each.help} |" for each in of_group
        ]
        parts.append("")
    assert not left, f"of no group: {[*left]}"
    parts += ["## Prometheus' advice\n", "| advice | here |", "| --- | --- |"]
    parts += [*(f"| {advice} | {done} |" for advice, done in ADVICE), ""]
    parts += [OTLP]
    about = (
        "By `rules/recording.yml` and `rules/fleet.yml`, in a Prometheus or ruler that loads them. "
        "`run:` is one series a run, `fleet:` one a cluster: what overviews and long-term stores "
        "keep.\n"
    )
    parts += ["## Recorded\n", about, "| series | file | of |", "| --- | --- | --- |"]
    for pack in ("recording.yml", "fleet.yml"):
        for rule in rules(pack):
            if "record" in rule:
                expression = " ".join(rule["expr"].split()).replace("|", "\\|")
                parts.append(f"| `{rule['record']}` | {pack} | `{expression}` |")
    return "\n".join(parts) + "\n"


def schema_of(model: type[BaseModel] | TypeAdapter[Any]) -> dict[str, Any]:
    """By draft 2020-12. The model spells non-finite numbers (`ser_json_inf_nan="strings"`)."""
    made = model if isinstance(model, TypeAdapter) else TypeAdapter(model)
    schema = made.json_schema(mode="serialization", schema_generator=Spelled)
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema}


def schemas() -> dict[str, str]:
    """Of what commands write as JSON, and the monitor to a webhook."""
    models: dict[str, Any] = {"report": Report, "compare": Comparison, "snapshot": Snapshot}
    models |= {"records": adapter(), "webhook": WebhookBody}
    return {
        f"{name}.schema.json": json.dumps(schema_of(model), indent=2) + "\n"
        for name, model in models.items()
    }


def checks_in_words() -> str:
    """A paragraph for each check, the worst first."""
    worst_first = sorted(checks().values(), key=lambda c: (-SEVERITIES.index(c.severity), c.id))
    return "\n".join(line for check in worst_first for line in paragraph(check))


def paragraph(check: Check) -> Iterator[str]:
    """A check, with what it rests on and how to mend it."""
    yield f"### {check.id}"
    yield ""
    yield f"**{check.severity}**: {without_markup(check.title)}. {without_markup(check.why)}"
    yield ""
    if check.since:
        yield f"- Since: {without_markup(check.since)}"
    yield f"- Source: {without_markup(check.source)}"
    yield f"- Fix: {without_markup(check.fix)}"
    yield ""


def without_markup(text: str) -> str:
    """Text in which Markdown sees no markup of its own."""
    return text if "`" in text else text.replace("<", "&lt;").replace("*", "\\*")


def doctor() -> str:
    """The page of the doctor with its checks as they are."""
    return between("doctor.md", CHECKS, checks_in_words().rstrip())


def promql() -> str:
    """The page of PromQL with the evaluator's tables as they are."""
    rows = {
        "arithmetic": ARITHMETIC,
        "comparisons, with and without `bool`": COMPARISON,
        "sets": SET_OPERATORS,
        "aggregations, `by` and `without`": AGGREGATIONS,
        "functions of each value, and dates": ELEMENTWISE,
        "functions of a vector": OVER_VECTOR,
        "functions of a range or subquery": OVER_RANGE.keys() - EXPERIMENTAL,
        "other functions": SPECIAL,
        "experimental functions": EXPERIMENTAL,
    }
    table = ["| of | supported |", "| --- | --- |"]
    for of, names in rows.items():
        table.append(f"| {of} | {', '.join(f'`{name}`' for name in sorted(names))} |")
    table.append(f"| levels of nesting | {MAX_DEPTH} |")
    counted = "operators, opening brackets, regexes and Unicode classes of an expression"
    table.append(f"| {counted} | {MAX_OPERATORS} |")
    return between("promql.md", TABLES, "\n".join(table))


def settings(model: type[BaseModel] = Settings, table: str = "") -> Iterator[tuple[str, ...]]:
    """Of every setting its key, variable, flag, default and meaning."""
    meanings = said_below(model)
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from settings(field.annotation, f"{name}.")
        else:
            key = table + name
            variable = "LDLM_" + key.replace(".", "_").upper()
            yield key, variable, FLAGS.get(key, ""), default_of(field.default), meanings[name]


def said_below(model: type[BaseModel]) -> dict[str, str]:
    """What stands below each attribute, in one line; what it inherits, too."""
    found: dict[str, str] = {}
    written = Settings.__base__ if model is Settings else model  # `Settings` itself is made of it
    assert written is not None
    for each in written.__mro__[: written.__mro__.index(Section)]:
        (defined,) = ast.parse(inspect.getsource(each)).body
        assert isinstance(defined, ast.ClassDef)
        for one, other in pairwise(defined.body):
            if isinstance(one, ast.AnnAssign) and isinstance(other, ast.Expr):
                found[ast.unparse(one.target)] = " ".join(ast.literal_eval(other.value).split())
    return found


def default_of(value: object) -> str:
    """A default as a page shows it."""
    if value is None or value in ((), {}):
        return "none"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def configuration() -> str:
    """The page of the configuration with all settings."""
    rows = ["| key | variable | flag | default | meaning |", "| --- | --- | --- | --- | --- |"]
    for key, variable, flag, default, meaning in settings():
        rows.append(f"| `{key}` | `{variable}` | {flag} | {default} | {meaning} |")
    return between("configuration.md", SETTINGS, "\n".join(rows))


def between(page: str, marks: tuple[str, str], made: str) -> str:
    """A page of which the part between two marks is made."""
    begin, end = marks
    before, _, rest = (PAGES / page).read_text("utf-8").partition(begin)
    return f"{before}{begin}\n\n{made}\n\n{end}{rest.partition(end)[2]}"


def decisions() -> str:
    """The page of decisions with the table of a run's states."""
    named = {PHASES: "any", TRAINS: "all while it trains"}
    rows = ["| what | from | to | it forgets |", "| --- | --- | --- | --- |"]
    for name, move in MOVES.items():
        left = named.get(move.leaves) or ", ".join(s for s in RUN_STATES if s in move.leaves)
        unless = f"; not beside a {move.unless}" if move.unless else ""
        forgotten = ", ".join(sorted(move.forgets)) or "-"
        rows.append(
            f"| **{name}**: {move.by} | {left}{unless} | {move.to or 'the same'} | {forgotten} |"
        )
    return between("decisions.md", STATES, "\n".join(rows))


def pages() -> dict[str, str]:
    """All that is made, by its path below docs/."""
    made = {"runbook/index.md": contents(), "metrics.md": metrics(), "doctor.md": doctor()}
    made |= {"promql.md": promql(), "decisions.md": decisions()}
    made |= {"configuration.md": configuration()}
    return {**runbook(), **made, **schemas()}


if __name__ == "__main__":
    (PAGES / "runbook").mkdir(exist_ok=True)
    for name, text in pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")
    print(f"{len(pages())} pages")
