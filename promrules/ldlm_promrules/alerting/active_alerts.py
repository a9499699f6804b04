"""Active alerts: the instances of a rule, one for each series of its result."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

from ldlm_promrules.alert_change import AlertChange
from ldlm_promrules.alerting.alert_texts import AlertTexts
from ldlm_promrules.alerting.rule_files import ALERT_NAME, AlertRule
from ldlm_promrules.errors import RuleError
from ldlm_promrules.samples import Labels, VectorSample, sorted_labels
from ldlm_promrules.templates.template_expansion import Context

E = TypeVar("E")

Ending: TypeAlias = Literal["resolved", "ended", "unknown"]  # how an alert ended


@dataclass(slots=True)
class ActiveAlert(Generic[E]):
    """A pending or firing alert.

    Unix seconds: `active_at`, when its condition began to hold; `fired_at`, when it began to fire
    (None: pending); `absent_since`, when its condition ceased to hold while `keep_firing_for`
    keeps it firing (None otherwise). `value`, `annotations`: when the condition last held.
    """

    rule: AlertRule[E]
    labels: dict[str, str]
    state: Literal["pending", "firing"]
    active_at: float
    value: float
    annotations: Mapping[str, str]
    fired_at: float | None = None
    absent_since: float | None = None


def agreement(alert: ActiveAlert[E], rule: AlertRule[E]) -> int:
    """The sum, over the rule's labels, of 1 if its text is the alert's value, otherwise -1."""
    equal = sum(alert.labels.get(name) == each.source for name, each in rule.labels.items())
    return 2 * equal - len(rule.labels)


def instances(
    rule: AlertRule[E], vector: Iterable[VectorSample], at: float, context: Context
) -> dict[Labels, ActiveAlert[E]]:
    """The alerts of a vector by their labels, each pending since `at` (Unix seconds)."""
    found: dict[Labels, ActiveAlert[E]] = {}
    for sample in vector:
        given = dict(sample.labels)
        texts = {
            name: each.expand(given, sample.value, at, context)
            for name, each in rule.labels.items()
        }
        annotations = AlertTexts(rule.annotations, given, sample.value, at, context)
        unset = {ALERT_NAME: "", "__name__": ""}
        labels = {name: text for name, text in {**given, **texts, **unset}.items() if text}
        key = sorted_labels(labels)
        if key in found:
            raise RuleError(
                "several alerts have the same labels",
                remedy="select one metric, and set no label by which series differ",
            )
        found[key] = ActiveAlert(rule, labels, "pending", at, sample.value, annotations)
    return found


def change_of(
    alert: ActiveAlert[E],
    at: float,
    state: Literal["pending", "firing"] | Ending,
    previous: Literal["inactive", "pending", "firing"],
    reason: str,
) -> AlertChange:
    """The change of an alert at `at` (Unix seconds), with its labels, texts and value."""
    return AlertChange(
        time=at,
        rule=alert.rule.name,
        state=state,
        previous=previous,
        reason=reason,
        labels=dict(alert.labels),
        annotations=dict(alert.annotations),
        value=alert.value,
        active_at=alert.active_at,
    )
