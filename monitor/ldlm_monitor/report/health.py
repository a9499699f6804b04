"""The health report of a snapshot as text, 80 columns wide."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from ldlm_monitor.analysis.readings import RunReadings
from ldlm_monitor.model.names import SEVERITIES
from ldlm_monitor.model.points import make_labels
from ldlm_monitor.model.records import Event, Position
from ldlm_monitor.model.view import AlertView, MonitorView, RunView, Snapshot
from ldlm_monitor.report.advice import recommendations
from ldlm_monitor.report.alerts import firing, firing_of, summary_of
from ldlm_monitor.report.goodput import Goodput, goodput
from ldlm_monitor.report.incidents import WIDTH, by_count, incident_lines, wrapped
from ldlm_monitor.text.format import byte_size, counted, duration, number, utc
from ldlm_monitor.text.sanitize import plain, shorten, shorten_path

_NO_BREAK = "\u00a0"
_BAR = 30
_ISSUES = 8
"""The most severe of a screenful; all are in the JSON."""
_QUANTITIES = 12
"""A table that fits one screen; all quantities are in the JSON."""
_ISSUE_SEVERITIES = frozenset(SEVERITIES[1:])
_FIRST_QUANTITIES = ("loss", "eval_loss", "grad_norm", "learning_rate", "step_seconds")


def health_report(
    snapshot: Snapshot, readings: Mapping[str, RunReadings] = MappingProxyType({})
) -> str:
    """The report of every run, ended by a newline. Log text in it is made harmless.

    `readings`, by run: where they are known, where the time went.
    """
    lines = [*_between("ldlm-monitor health report", utc(snapshot.at)), "=" * WIDTH]
    for run in snapshot.runs:
        lines += ["", *_run(run, snapshot, readings.get(run.name))]
    if not snapshot.runs:
        lines += ["", "No training run was found in what was read."]
    unowned = [alert for alert in firing(snapshot) if not _owner(alert, snapshot)]
    lines += _section("Firing on the monitor itself", _alerts(unowned))
    lines += ["", "-" * WIDTH, *_overview(snapshot), *wrapped(_monitor(snapshot.monitor))]
    return "\n".join(lines) + "\n"


def _overview(snapshot: Snapshot) -> Iterator[str]:
    """Of several runs one line each, and the names of what fires."""
    if len(snapshot.runs) < 2:
        return
    for run in snapshot.runs:
        name = plain(run.name, WIDTH - 12 - len(run.state))
        yield from _between(f"{run.headline:<10}{name}", run.state)
        names = dict.fromkeys(alert.name for alert in firing_of(run, snapshot))
        yield from wrapped(", ".join(plain(name, 40) for name in names), indent=10)
    yield ""


def _run(run: RunView, snapshot: Snapshot, readings: RunReadings | None) -> Iterator[str]:
    known = run.framework not in {"", "unknown"}
    framework = f" ({plain(run.framework, 24)})" if known else ""
    state = f"{run.state}{framework}"
    yield from _between(f"{run.headline}  {plain(run.name, WIDTH - 14 - len(state))}", state)
    yield "-" * WIDTH
    yield from _facts(run, snapshot)
    yield from _section("Statistics over the last values", _statistics(run))
    alerts = firing_of(run, snapshot)
    failures = [each for each in snapshot.incidents if each.run == run.name]
    yield from _section("Incidents", incident_lines(failures))
    yield from _section("Firing", _alerts(alerts))
    issues = [
        event
        for event in snapshot.events
        if event.run == run.name and event.severity in _ISSUE_SEVERITIES
    ]
    yield from _section("Recent issues", _issues(issues))
    if readings is not None and (spent := goodput(readings, run, snapshot.at)):
        yield from _section("Where the time went", _goodput(spent))
    yield from _section("Events", _counts(run.event_counts))
    advice = recommendations((alert.name for alert in alerts), run.settings)
    yield from _section("Recommendations", _listed(advice))


def facts(run: RunView, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Names and values, each only where it is known and still means something."""
    left = run.eta_seconds if run.ended_at is None else None
    limit = run.stall_limit_seconds if run.ended_at is None else None
    pairs = (
        ("Pace", _pace(run, snapshot)),
        ("Time left", duration(left) if left is not None else ""),
        ("Started", utc(run.started_at) if run.started_at is not None else ""),
        ("Last step", _last_step(run, snapshot.at)),
        ("Stall limit", duration(limit) if limit is not None else ""),
        ("Ended", utc(run.ended_at) if run.ended_at is not None else ""),
        ("Failed rank", "" if run.failed_rank is None else str(run.failed_rank)),
        ("Ranks", str(run.world_size) if run.world_size else ""),
        ("Skipped", f"{run.skipped_steps} steps" if run.skipped_steps else ""),
    )
    yield from ((name, value) for name, value in pairs if value)


def _facts(run: RunView, snapshot: Snapshot) -> Iterator[str]:
    if progress := _progress(run):
        yield f"{'Progress':<13}{progress}"
    for name, value in facts(run, snapshot):
        yield f"{name:<13}{value}"
    if run.verdict is not None:
        reasons = "; ".join(run.verdict.reasons)
        shown = f"{run.verdict.word}: {reasons}" if reasons else run.verdict.word
        yield from wrapped(f"{'Verdict':<13}{plain(shown)}", hanging=13)
    for index, path in enumerate(run.files):
        yield f"{'' if index else 'Files':<13}{shorten_path(plain(path), WIDTH - 13)}"


def _progress(run: RunView) -> str:
    step = "" if run.step is None else f"step {run.step}"
    if step and run.total_steps:
        step += f" of {run.total_steps}"
    if run.progress is None:
        return step
    share = min(max(run.progress, 0.0), 1.0)
    done = int(share * _BAR)
    return f"[{'#' * done}{'.' * (_BAR - done)}] {100 * share:5.1f} %  {step}".rstrip()


def _pace(run: RunView, snapshot: Snapshot) -> str:
    parts = []
    if (seconds := _step_seconds(run, snapshot)) is not None:
        parts.append(f"{duration(seconds)} a step")
    for name, unit in (("samples_per_second", "samples/s"), ("tokens_per_second", "tokens/s")):
        if rate := run.statistics.get(name):
            parts.append(f"{number(rate.current)} {unit}")
    return ", ".join(parts)


def _step_seconds(run: RunView, snapshot: Snapshot) -> float | None:
    """As the log reports it; else as it is exported: derived from the times of the steps."""
    if step := run.statistics.get("step_seconds"):
        return step.mean if step.mean is not None else step.current
    labels = make_labels(run=run.name)
    derived = (
        point.value
        for point in snapshot.points
        if point.name == "ldlm_train_step_seconds" and point.labels == labels
    )
    return next(derived, None)


def _last_step(run: RunView, now: float) -> str:
    if run.last_progress_at is None:
        return ""
    ago = f" ({duration(now - run.last_progress_at)} ago)" if run.ended_at is None else ""
    return f"{utc(run.last_progress_at)}{ago}"


def _statistics(run: RunView) -> Iterator[str]:
    names = sorted(run.statistics, key=quantity_order)
    if not names:
        return
    titles = ("current", "mean", "min", "max", "non-finite")
    yield f"  {'':<22}" + "".join(f"{title:>11}" for title in titles[:-1]) + f"{titles[-1]:>12}"
    for name in names[:_QUANTITIES]:
        values = run.statistics[name]
        cells = (values.current, values.mean, values.minimum, values.maximum)
        row = "".join(f"{amount(name, cell):>11}" for cell in cells)
        yield f"  {plain(name, 21):<22}{row}{values.nonfinite:>12}"
    if len(names) > _QUANTITIES:
        yield f"  and {len(names) - _QUANTITIES} more quantities"


def _goodput(spent: Goodput) -> Iterator[str]:
    yield from wrapped(spent.said, indent=2)
    for loss in spent.losses:
        share = f"{100 * loss.seconds / spent.total_seconds:.1f} %"
        times = f"{loss.times} times" if loss.times > 1 else ""
        yield f"  {loss.what:<22}{duration(loss.seconds):>14}{share:>10}{times:>16}".rstrip()


def quantity_order(name: str) -> tuple[int, str]:
    """The quantities that one looks for first, then the others by name."""
    known = name in _FIRST_QUANTITIES
    return (_FIRST_QUANTITIES.index(name) if known else len(_FIRST_QUANTITIES), name)


def _owner(alert: AlertView, snapshot: Snapshot) -> bool:
    return any(run.name == alert.labels.get("run") for run in snapshot.runs)


def _alerts(alerts: Iterable[AlertView]) -> Iterator[str]:
    for alert in alerts:
        rank = f"  rank {plain(alert.labels['rank'], 12)}" if "rank" in alert.labels else ""
        name = f"  {alert.labels['severity']:<9}{plain(alert.name, 40)}{rank}"
        yield from _between(name, utc(alert.fired_at))
        yield from wrapped(summary_of(alert), indent=11)
        if alert.position:
            yield f"{'':<11}{_place(alert.position, WIDTH - 11)}"
        if action := alert.annotations.get("action"):
            yield from wrapped(f"-> {plain(action, 800)}", indent=11, hanging=3)


def _issues(events: Iterable[Event]) -> Iterator[str]:
    """Root causes first, then the newest; a kind on a rank once, its last line and a count."""
    counts: Counter[tuple[str, int | None]] = Counter()
    newest: dict[tuple[str, int | None], Event] = {}
    for event in reversed(list(events)):
        counts[event.kind, event.rank] += 1
        newest.setdefault((event.kind, event.rank), event)
    ordered = sorted(newest.items(), key=lambda item: item[1].fields.get("role") != "root")
    for key, event in ordered[:_ISSUES]:
        rank = "" if event.rank is None else f"  rank {event.rank}"
        times = f"  {counts[key]} times" if counts[key] > 1 else ""
        left = f"  {event.severity:<9}{plain(event.kind, 30)}{rank}{times}"
        yield from _between(left, utc(event.time) if event.time is not None else "")
        if event.message:
            yield f"{'':<11}{plain(event.message, WIDTH - 11)}"
        yield f"{'':<11}{_place(event.position, WIDTH - 11)}"


def _counts(counts: dict[str, int]) -> Iterator[str]:
    """The most frequent first; a name and its count stay on one line."""
    joined = ", ".join(
        f"{plain(kind, 40)} {count}".replace(" ", _NO_BREAK) for kind, count in by_count(counts)
    )
    for line in wrapped(joined, indent=2):
        yield line.replace(_NO_BREAK, " ")


def _listed(sentences: Sequence[str]) -> Iterator[str]:
    for sentence in sentences:
        yield from wrapped(f"- {plain(sentence)}", indent=2, hanging=2)


def _monitor(monitor: MonitorView) -> str:
    parts = [
        f"Read {counted(monitor.lines, 'line')} ({byte_size(monitor.bytes)})",
        f"{counted(sum(monitor.records.values()), 'record')}",
        f"{counted(monitor.parse_errors, 'parse error')}",
        f"{counted(monitor.evaluations, 'evaluation')} of the rules",
    ]
    parts += [
        f"dropped {count} ({plain(why, 40)})" for why, count in monitor.dropped.items() if count
    ]
    return ", ".join(parts) + "."


def amount(quantity: str, value: float | None) -> str:
    """A value of a quantity: bytes in the greatest unit that they fill."""
    if value is None or not quantity.endswith("_bytes") or not math.isfinite(value):
        return number(value)
    return byte_size(value)


def _place(position: Position, limit: int) -> str:
    line = f":{position.line}"
    return shorten_path(plain(position.path), limit - len(line)) + line


def _section(title: str, body: Iterable[str]) -> list[str]:
    """The title and the body below it; nothing at all where the body is empty."""
    lines = list(body)
    return ["", title, *lines] if lines else []


def _between(left: str, right: str) -> list[str]:
    """One line with `left` and `right` at the margins."""
    left = shorten(left, WIDTH - len(right) - 1) if right else left
    return [f"{left}{right:>{WIDTH - len(left)}}".rstrip()]
