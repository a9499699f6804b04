"""The rules that are part of the package."""

from functools import cache
from importlib.resources import files
from pathlib import Path

from ldlm_monitor.base.names import severity_rank
from ldlm_promrules.alerting import RuleSet, load_rules
from ldlm_promrules.promql import Expression, parse


def packaged_rules() -> list[Path]:
    """The paths of the default rules, which are part of the package."""
    return [Path(str(files("ldlm_monitor.judge.core"))) / "packaged" / "default.yml"]


@cache
def packaged_set() -> RuleSet[Expression]:
    """The packaged rules."""
    return load_rules(packaged_rules(), parse)


@cache
def packaged_alerts() -> dict[str, str]:
    """The packaged alerts, with their severities: the worst of those with several."""
    found: dict[str, str] = {}
    for rule in packaged_set().alerts:
        severity = rule.labels["severity"].source
        found[rule.name] = max(found.get(rule.name, severity), severity, key=severity_rank)
    return found
