"""Warnings about rules that load but hardly do what their author means: what is exported here."""

from collections.abc import Iterable, Iterator, Sequence

from ldlm_monitor.base.names import RUN_STATES, SEVERITIES, created
from ldlm_monitor.base.text.format import duration
from ldlm_monitor.judge.core.exported_metrics import METRICS
from ldlm_promrules.rule_lint import Catalogue, Interval, Rule, doubts, repetitions

_SUFFIXES = {  # of the series that a metric of this kind has
    "gauge": ("",),
    "counter": ("",),
    "histogram": ("", "_bucket", "_sum", "_count"),
}
_SHARE, _FLAG = Interval(0, 1), Interval(0, 1)
EXPORTED = Catalogue(
    series=frozenset(
        metric.name + suffix for metric in METRICS.values() for suffix in _SUFFIXES[metric.kind]
    )
    | {created(metric.name) for metric in METRICS.values() if metric.kind == "counter"},
    listed_in="docs/metrics.md lists what there is",
    labels={
        name: ("run", "rank", *metric.labels)
        for name, metric in METRICS.items()
        if name != "ldlm_alerts"  # that has the labels of any rule
    },
    values={
        ("ldlm_run_state", "state"): tuple(RUN_STATES),
        ("ldlm_events_total", "severity"): tuple(SEVERITIES),
    },
    bounds={  # those that the monitor computes: what a trainer logs may be anything
        "ldlm_train_progress_ratio": _SHARE,
        "ldlm_goodput_ratio": _SHARE,
        "ldlm_goodput_ettr_ratio": _SHARE,
        "ldlm_run_state": _FLAG,
        "ldlm_gpu_throttled": _FLAG,
        "ldlm_run_health": Interval(0, 3),
        "ldlm_run_info": Interval(1, 1),
        "ldlm_build_info": Interval(1, 1),
        "ldlm_alerts": Interval(1, 1),
    },
    severities=(*SEVERITIES, "none"),
)
"""What the monitor exports, for the lint of rules."""


def warnings_of(rules: Sequence[Rule], every: float, external: Iterable[str] = ()) -> Iterator[str]:
    """A line for each doubtful thing; `rules`: those of all files that are loaded together.

    `every`: seconds between two evaluations. `external`: labels that a Prometheus adds.
    """
    yield from doubts(rules, EXPORTED, external)
    for file, group, own in dict.fromkeys((r.file, r.group, r.interval) for r in rules):
        if 0 < own < every:
            yield (
                f"{file}: group {group}: interval {duration(own)} is not followed: "
                f"evaluation_interval is {duration(every)}"
            )
    yield from repetitions(rules)
