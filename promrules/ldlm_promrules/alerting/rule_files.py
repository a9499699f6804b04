"""Reads Prometheus rule files, checks them, and parses their expressions and templates."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from ldlm_promrules.alerting.rule_yaml import Keys, TextLoader, invalid, read_file
from ldlm_promrules.durations import parse_duration
from ldlm_promrules.errors import RuleError
from ldlm_promrules.templates.template import Template

E = TypeVar("E")  # a parsed expression, which this package only passes on

ALERT_NAME = "alertname"  # Prometheus' label with the name of an alert
TEST_SUFFIX = ".test.yml"  # of unit test files. A choice: a shorter one could end a rule file's
_FORM = "see the rule file format of Prometheus"  # remedy for wrong content
# Names that rules may set: those of Prometheus 2. Prometheus 3 also accepts any other text.
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@dataclass(frozen=True, slots=True)
class AlertRule(Generic[E]):
    """An alerting rule of `group` in `file`. `hold` (key `for`) and `keep_firing_for`: seconds.

    Of the group: `interval` (seconds; 0 if it has none) and `limit` (0: none), the number of series
    beyond which the rule fails.
    """

    name: str
    expr: E
    hold: float
    keep_firing_for: float
    labels: dict[str, Template]
    annotations: dict[str, Template]
    file: str
    group: str
    interval: float = 0.0
    limit: int = 0

    @property
    def is_steady(self) -> bool:
        """Whether its texts depend on the alert's labels and value alone."""
        texts = chain(self.labels.values(), self.annotations.values())
        return all(text.is_steady for text in texts)


@dataclass(frozen=True, slots=True)
class RecordingRule(Generic[E]):
    """A rule of `group` in `file`; its result becomes the metric `record`, with `labels` added.

    `interval` and `limit`: as of an alerting rule.
    """

    record: str
    expr: E
    labels: dict[str, str]
    file: str
    group: str
    interval: float = 0.0
    limit: int = 0


Rule: TypeAlias = AlertRule[E] | RecordingRule[E]


@dataclass(frozen=True, slots=True)
class RuleSet(Generic[E]):
    """All rules in the order of evaluation: by file as given, then as written in the file."""

    rules: tuple[Rule[E], ...]

    @property
    def alerts(self) -> tuple[AlertRule[E], ...]:
        """The alerting rules alone."""
        return tuple(rule for rule in self.rules if isinstance(rule, AlertRule))


def load_rules(paths: Sequence[Path], parse: Callable[[str], E]) -> RuleSet[E]:
    """The rules of files and folders; of a folder, those of its `*.yml` except unit tests.

    `parse` parses an expression. The first problem raises RuleError, with file and rule if known.
    """
    rules: list[Rule[E]] = []
    for path in paths:
        found, problems = check_rules(path, parse)
        if problems:
            raise problems[0]
        rules += found
    return RuleSet(tuple(rules))


def check_rules(path: Path, parse: Callable[[str], E]) -> tuple[list[Rule[E]], list[RuleError]]:
    """The valid rules of a file or folder, and an error for each invalid rule or file."""
    rules: list[Rule[E]] = []
    problems: list[RuleError] = []
    for file in _files_of(path):
        try:
            raws = _raw_rules(file)
        except RuleError as problem:
            problems.append(problem)
            continue
        for group, number, raw in raws:
            try:
                rules.append(_build(raw, number, parse, str(file), group))
            except RuleError as problem:
                problems.append(problem)
    return rules, problems


def check_limit(rule: Rule[E], count: int) -> None:
    """Raise RuleError if a result of `count` series is beyond the limit of the rule's group."""
    if 0 < rule.limit < count:
        raise RuleError(
            f"the result has {count} series, more than the group's limit of {rule.limit}",
            remedy="raise the limit, or aggregate",
        )


_Duration: TypeAlias = Annotated[float, BeforeValidator(lambda value: parse_duration(str(value)))]
# YAML's null is Go's empty text.
_Text: TypeAlias = Annotated[str, BeforeValidator(lambda text: "" if text is None else text)]


def _check_names(labels: dict[str, str]) -> dict[str, str]:
    for name in labels:
        if not _LABEL_NAME.fullmatch(name) or name == "__name__":
            raise ValueError(f"a rule can set no label {name!r}")
    return labels


_Labels: TypeAlias = Annotated[dict[str, _Text], AfterValidator(_check_names)]


class _RuleModel(Keys, BaseModel):
    alert: str = ""
    record: str = ""
    expr: str
    hold: _Duration = Field(0.0, alias="for")
    keep_firing_for: _Duration = 0.0
    labels: _Labels = {}
    annotations: dict[str, _Text] = {}

    @model_validator(mode="after")
    def _is_one_kind(self) -> "_RuleModel":
        if bool(self.alert) == bool(self.record):
            raise ValueError("needs either alert or record")
        if self.record and (self.hold or self.keep_firing_for or self.annotations):
            raise ValueError("a recording rule has no for, keep_firing_for or annotations")
        if self.record and not _METRIC_NAME.fullmatch(self.record):
            raise ValueError(f"{self.record!r} is not a metric name")
        for name in self.annotations:
            if not _LABEL_NAME.fullmatch(name):
                raise ValueError(f"a rule can set no annotation {name!r}")
        return self


class _GroupModel(Keys, BaseModel):
    name: Annotated[str, Field(min_length=1)]
    interval: _Duration = 0.0
    limit: int = 0
    query_offset: _Duration = 0.0
    labels: _Labels = {}
    rules: list[Any] = []

    @field_validator("query_offset")
    @classmethod
    def _is_now(cls, offset: float) -> float:
        if offset:
            raise ValueError("Prometheus has it, the monitor not: write `offset` in expressions")
        return offset


class _FileModel(Keys, BaseModel):
    groups: list[_GroupModel] = []


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.glob("*.yml") if not file.name.endswith(TEST_SUFFIX))


def _raw_rules(path: Path) -> list[tuple[_GroupModel, int, Any]]:
    """Group, number in the group (from 1), and unchecked content of each rule of a file."""
    groups = read_file(path, TextLoader, _FileModel, _FORM).groups
    names = [group.name for group in groups]
    for name in names:
        if names.count(name) > 1:
            raise RuleError(
                f"group {name!r} is defined twice", where=str(path), remedy="rename one of them"
            )
    return [(group, number, raw) for group in groups for number, raw in enumerate(group.rules, 1)]


def _build(
    raw: Any, number: int, parse: Callable[[str], E], file: str, group: _GroupModel
) -> Rule[E]:
    named = raw.get("alert") or raw.get("record") if isinstance(raw, dict) else None
    where = f"{file}: group {group.name}, rule {number}" + (f" ({named})" if named else "")
    try:
        model = _RuleModel.model_validate(raw)
    except ValidationError as problem:
        raise invalid(problem, where, _FORM) from None
    labels, from_group = group.labels | model.labels, (group.name, group.interval, group.limit)
    try:
        expr = parse(model.expr)
        if model.record:
            return RecordingRule(model.record, expr, labels, file, *from_group)
        return AlertRule(
            model.alert,
            expr,
            model.hold,
            model.keep_firing_for,
            _templates("label", labels),
            _templates("annotation", model.annotations),
            file,
            *from_group,
        )
    except RuleError as problem:
        inner = f"{where}, {problem.where}" if problem.where else where
        raise RuleError(problem.what, where=inner, remedy=problem.remedy) from problem


def _templates(kind: str, texts: dict[str, str]) -> dict[str, Template]:
    parsed = {}
    for name, text in texts.items():
        try:
            parsed[name] = Template.parse(text)
        except RuleError as problem:
            where = f"{kind} {name}, {problem.where}"
            raise RuleError(problem.what, where=where, remedy=problem.remedy) from None
    return parsed
