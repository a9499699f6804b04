"""Which checks had no input: rules that read quantities which a run does not log.

A rule's expression names its series, and so the quantities that it reads: there is no second list.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Final

from ldlm_monitor.base.names import CANONICAL_VALUES, METRIC_SILENCE
from ldlm_monitor.base.points import PACES
from ldlm_monitor.base.snapshot import NotCheckedView
from ldlm_monitor.judge.detect import CITED, GAUGES_OF
from ldlm_monitor.judge.detect.checkpoint_age import CHECKPOINT_GAUGES
from ldlm_monitor.judge.detect.throughput import RankDetector
from ldlm_monitor.judge.run.quantity import exported_name
from ldlm_monitor.judge.run.training_run import TrainingRun
from ldlm_promrules.alerting import RuleSet
from ldlm_promrules.promql import Expression
from ldlm_promrules.promql.expression import result_selectors, selectors
from ldlm_promrules.promql.nodes import Selector

TO_LOG: Final[Mapping[str, tuple[str, str]]] = {
    "loss": ("no loss", "the loss of each step"),
    "step": ("no step", "the step beside each loss"),
    "grad_norm": ("no grad_norm", "the gradient norm of each step"),
    "learning_rate": ("no learning rate", "lr of each step"),
    "eval_loss": ("no eval_loss", "the loss of each evaluation"),
    "memory_allocated_bytes": ("no GPU memory", "the memory that is allocated"),
    "ranks": ("no steps of single ranks", "those of each rank, such as by the callback"),
    "checkpoints": ("no saved checkpoint", "a line for each one"),
}
"""Words for an input that is missing, and what to log to have it. Of other inputs, one training has
them and another has none (a loss scale, rewards): their absence is no gap."""
_NO_TIMES: Final = ("its lines have no times", "a time in each line")
"""The same for a step whose time is not known."""
_ORDER: Final = tuple(TO_LOG)
_OWN: Final = "ldlm_train_metric"  # the metric of every quantity that has none of its own


@dataclass(frozen=True, slots=True)
class Check:
    """An alert, and the inputs of its rules: of each rule, any is enough. `beside`: what else its
    rules read.
    """

    alert: str
    rules: tuple[frozenset[str], ...]
    beside: frozenset[str]


def checks_of(rules: RuleSet[Expression]) -> tuple[Check, ...]:
    """The alerts that need quantities; none of those that also watch events or states alone."""
    found: dict[str, list[frozenset[str] | None]] = {}
    beside: dict[str, set[str]] = {}
    for rule in rules.alerts:
        inputs = [_quantity(each) for each in result_selectors(rule.expr.root)]
        known = frozenset(each for each in inputs if each)
        found.setdefault(rule.name, []).append(None if None in inputs or not known else known)
        read = (_quantity(each) for each in selectors(rule.expr))
        beside.setdefault(rule.name, set()).update(each for each in read if each)
    return tuple(
        Check(name, tuple(each for each in inputs if each), frozenset(beside[name]))
        for name, inputs in found.items()
        if None not in inputs
    )


def _quantity(selector: Selector) -> str | None:
    """The quantity that a selector needs; "" for times of values, None if it needs none."""
    metric = selector.metric
    named = {each.name: each.value for each in selector.matchers if each.op == "="}
    if metric in (_OWN, METRIC_SILENCE):
        return named.get("name")
    return _inputs().get(metric)


@lru_cache(maxsize=1)
def _inputs() -> Mapping[str, str]:
    """The quantity behind each metric."""
    steps = "ldlm_train_last_progress_timestamp_seconds"
    own = {exported_name(each)[0]: each for each in CANONICAL_VALUES}
    own |= {gauge: each for each, gauges in GAUGES_OF.items() for gauge in gauges}
    own |= dict.fromkeys((steps, *CITED[steps]), "step")
    for gauges, quantity in ((RankDetector.gauges, "ranks"), (CHECKPOINT_GAUGES, "checkpoints")):
        own |= {gauge: quantity for gauge in CITED[steps] if gauge[len("ldlm_detect_") :] in gauges}
    own |= {"ldlm_train_component_loss": "loss", "ldlm_train_last_nonfinite_timestamp_seconds": ""}
    own.pop(_OWN, None)
    return own


def not_checked(checks: tuple[Check, ...], run: TrainingRun) -> tuple[NotCheckedView, ...]:
    """The checks without an input in this run, a line for each input that is missing."""
    size = run.logged.world_size
    known = {*run.values.quantities()}
    known |= {"loss"} if any(each.startswith("loss_") for each in known - {"loss_scale"}) else set()
    known |= {"checkpoints"} if run.progress.saved else set()
    known |= {"ranks"} if len(run.progress.rank_steps) > 1 or size == 1 else set()
    has_step = run.progress.step is not None
    if has_step and (run.life.timed or not known.isdisjoint(PACES)):
        known.add("step")
    return _lines(checks, frozenset(known), has_step, tuple(run.values.missed()))


@lru_cache(maxsize=1024)  # a snapshot asks again for each run; most log the same quantities
def _lines(
    checks: tuple[Check, ...],
    known: frozenset[str],
    has_step: bool,
    missed: tuple[tuple[str, str], ...],
) -> tuple[NotCheckedView, ...]:
    found: dict[str, list[str]] = {}
    for check in checks:
        inputs = frozenset[str]().union(*check.rules)
        for name in inputs & {*map(itemgetter(0), missed)}:
            found.setdefault(name, []).append(check.alert)
        if inputs.isdisjoint(known):
            name = min(inputs, key=_order)
            if name in TO_LOG or not check.beside.isdisjoint(known):
                found.setdefault(name, []).append(check.alert)
    words = {**TO_LOG, "step": _NO_TIMES} if has_step else TO_LOG
    since = dict(missed)
    return tuple(
        NotCheckedView(
            check=", ".join(found[name]),
            why=since.get(name) or words.get(name, (f"no {name}", ""))[0],
            log=words.get(name, ("", name))[1],
            quantity=name,
        )
        for name in sorted(found, key=_order)
    )


def _order(name: str) -> tuple[int, str]:
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER)), name
