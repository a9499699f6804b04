"""The rules that are part of the package."""

from functools import cache
from importlib.resources import files
from pathlib import Path

from ldlm_promrules.alerting import RuleSet, load_rules
from ldlm_promrules.promql import Expression, parse


def packaged_rules() -> list[Path]:
    """The paths of the default rules, which are part of the package."""
    return [Path(str(files("ldlm_monitor.judge.core"))) / "packaged" / "default.yml"]


@cache
def packaged_set() -> RuleSet[Expression]:
    """The packaged rules."""
    return load_rules(packaged_rules(), parse)
