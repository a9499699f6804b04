"""Reads and validates unit tests of rules in promtool's format.

Source of the format: Prometheus `cmd/promtool/unittest.go` (2.42). As there, labels and other
texts stay as written (`1.50` is no number), and unknown fields are refused.
"""

from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from ldlm_promrules.alerting.rule_yaml import Keys, TextLoader, read_file
from ldlm_promrules.durations import parse_duration
from ldlm_promrules.errors import RuleError

_FORM = "see Prometheus' documentation, Unit Testing for Rules"  # for wrong content


def _checked_duration(text: str) -> str:
    parse_duration(text)
    return text


def _number(value: Any) -> Any:
    """Python's form of YAML's NaN and infinities. Raises ValueError for forms that YAML lacks."""
    spellings = {".nan": "nan", ".inf": "inf", "-.inf": "-inf", "+.inf": "inf"}
    if not isinstance(value, str):
        return value
    if value.lower().strip("+-") in {"nan", "inf", "infinity"}:
        raise ValueError(f"{value} is no number in YAML: write .nan, .inf or -.inf")
    return spellings.get(value.lower(), value)


Duration: TypeAlias = Annotated[str, AfterValidator(_checked_duration)]
"""A duration as written, of which `parse_duration` returns the seconds."""
_Number: TypeAlias = Annotated[float, BeforeValidator(_number)]
_Name: TypeAlias = Annotated[str, Field(min_length=1)]


class _Model(Keys, BaseModel):
    model_config = ConfigDict(frozen=True)


class InputSeries(_Model):
    """A series such as `up{job="a"}`; `values` such as `1+2x3`, one each `interval` of the test."""

    series: _Name
    values: str


class ExpectedAlert(_Model):
    """A firing alert; its label `alertname` may be left out."""

    exp_labels: dict[str, str] = {}
    exp_annotations: dict[str, str] = {}


class AlertRuleTest(_Model):
    """The alerts named `alertname` that must fire `eval_time` after the start, and no other may."""

    eval_time: Duration = "0s"
    alertname: _Name
    exp_alerts: list[ExpectedAlert] = []


class ExpectedSample(_Model):
    """One element of a vector: `labels`, a series such as `up{job="a"}`, and its `value`."""

    labels: str = ""
    value: _Number = 0.0


class PromqlExprTest(_Model):
    """The samples that `expr` must have at `eval_time` after the start, in any order."""

    expr: str
    eval_time: Duration = "0s"
    exp_samples: list[ExpectedSample] = []


class RuleTest(_Model):
    """Series, their `interval` (None: the `evaluation_interval`), and the results that must follow.

    Templates read `external_labels` and `external_url`.
    """

    name: str = ""
    interval: Duration | None = None
    input_series: list[InputSeries] = []
    alert_rule_test: list[AlertRuleTest] = []
    promql_expr_test: list[PromqlExprTest] = []
    external_labels: dict[str, str] = {}
    external_url: str = ""


class UnitTestFile(_Model):
    """Tests. `rule_files`: paths or globs from the file's folder; `group_eval_order`: names."""

    rule_files: list[str] = []
    evaluation_interval: Duration = "1m"
    group_eval_order: list[str] = []
    tests: list[RuleTest] = []


def load_unit_tests(path: Path) -> UnitTestFile:
    """The tests of a file. Raises RuleError with the file and the field of the first problem."""
    found = read_file(path, TextLoader, UnitTestFile, _FORM)
    for name in found.group_eval_order:
        if found.group_eval_order.count(name) > 1:
            raise RuleError(
                f"group_eval_order: group {name!r} is listed twice",
                where=str(path),
                remedy="name it once",
            )
    return found
