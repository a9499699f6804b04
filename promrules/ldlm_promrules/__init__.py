"""Prometheus' rules in Python: PromQL, rule files, alert states, templates, unit tests, lint.

The names below are the public ones. Each is imported at its first use, so that only who evaluates
an expression pays for its parser.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ldlm_promrules.alert_change import AlertChange
    from ldlm_promrules.alerting import (
        ActiveAlert,
        AlertRule,
        AlertStates,
        RecordingRule,
        RuleSet,
        check_rules,
        load_rules,
    )
    from ldlm_promrules.durations import parse_duration
    from ldlm_promrules.errors import PromRulesError, RuleError, SampleError, UnsupportedError
    from ldlm_promrules.evaluation import evaluate
    from ldlm_promrules.promql import LOOKBACK, Evaluator, Expression, parse
    from ldlm_promrules.promql.annotations import Notes
    from ldlm_promrules.query_answers import instant, over
    from ldlm_promrules.rule_lint import Catalogue, Interval, lint
    from ldlm_promrules.sample_files import read_samples
    from ldlm_promrules.samples import (
        Labels,
        ListedStorage,
        Matcher,
        Point,
        Series,
        Storage,
        VectorSample,
        sorted_labels,
    )
    from ldlm_promrules.series.listed_series import ListedSeries
    from ldlm_promrules.series.series_store import SeriesStore
    from ldlm_promrules.shown import shown
    from ldlm_promrules.templates.template import Template
    from ldlm_promrules.templates.template_expansion import Context
    from ldlm_promrules.unit_tests import Outcome, run_rule_tests

__version__ = "0.1.0"

_PLACES = {
    "alert_change": ("AlertChange",),
    "alerting": (
        "ActiveAlert", "AlertRule", "AlertStates", "RecordingRule", "RuleSet", "check_rules",
        "load_rules",
    ),
    "durations": ("parse_duration",),
    "errors": ("PromRulesError", "RuleError", "SampleError", "UnsupportedError"),
    "evaluation": ("evaluate",),
    "promql": ("LOOKBACK", "Evaluator", "Expression", "parse"),
    "promql.annotations": ("Notes",),
    "query_answers": ("instant", "over"),
    "rule_lint": ("Catalogue", "Interval", "lint"),
    "sample_files": ("read_samples",),
    "samples": (
        "Labels", "ListedStorage", "Matcher", "Point", "Series", "Storage", "VectorSample",
        "sorted_labels",
    ),
    "series.listed_series": ("ListedSeries",),
    "series.series_store": ("SeriesStore",),
    "shown": ("shown",),
    "templates.template": ("Template",),
    "templates.template_expansion": ("Context",),
    "unit_tests": ("Outcome", "run_rule_tests"),
}  # fmt: skip
_MODULES = {name: f"{__name__}.{module}" for module, names in _PLACES.items() for name in names}

__all__ = [
    "LOOKBACK",
    "ActiveAlert",
    "AlertChange",
    "AlertRule",
    "AlertStates",
    "Catalogue",
    "Context",
    "Evaluator",
    "Expression",
    "Interval",
    "Labels",
    "ListedSeries",
    "ListedStorage",
    "Matcher",
    "Notes",
    "Outcome",
    "Point",
    "PromRulesError",
    "RecordingRule",
    "RuleError",
    "RuleSet",
    "SampleError",
    "Series",
    "SeriesStore",
    "Storage",
    "Template",
    "UnsupportedError",
    "VectorSample",
    "check_rules",
    "evaluate",
    "instant",
    "lint",
    "load_rules",
    "over",
    "parse",
    "parse_duration",
    "read_samples",
    "run_rule_tests",
    "shown",
    "sorted_labels",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
