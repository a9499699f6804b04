"""Reads Prometheus rule files, checks them, and parses their expressions and templates."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ldlm_monitor.alerts.durations import parse_duration
from ldlm_monitor.alerts.templates import Template
from ldlm_monitor.model.errors import RuleError, first_problem

ModelT = TypeVar("ModelT", bound=BaseModel)
E = TypeVar("E")  # a parsed expression, which this room only passes on

ALERT_NAME = "alertname"  # Prometheus' label with the name of an alert
TEST_SUFFIX = ".test.yml"  # of unit test files. A choice: a shorter one could end a rule file's
_FORM = "see the rule file format of Prometheus"  # remedy for wrong content
# Names that rules may set: those of Prometheus 2. Prometheus 3 also accepts any other text.
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@dataclass(frozen=True, slots=True)
class AlertRule(Generic[E]):
    """An alerting rule of `group` in `file`. `hold` (key `for`) and `keep_firing_for`: seconds."""

    name: str
    expr: E
    hold: float
    keep_firing_for: float
    labels: dict[str, Template]
    annotations: dict[str, Template]
    file: str
    group: str

    @property
    def is_steady(self) -> bool:
        """Whether its texts depend on the alert's labels and value alone."""
        texts = chain(self.labels.values(), self.annotations.values())
        return all(text.is_steady for text in texts)


@dataclass(frozen=True, slots=True)
class RecordingRule(Generic[E]):
    """A rule of `group` in `file`; its result becomes the metric `record`, with `labels` added."""

    record: str
    expr: E
    labels: dict[str, str]
    file: str
    group: str


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


def packaged_rules() -> list[Path]:
    """The paths of the default rules, which are part of the package."""
    return [Path(str(files("ldlm_monitor.alerts"))) / "packaged" / "default.yml"]


def _text(value: Any) -> str:
    """The text of a YAML scalar: in Prometheus, `severity: 1` and `expr: 1` are text, too."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be text")
    return str(value)


_Duration: TypeAlias = Annotated[float, BeforeValidator(lambda value: parse_duration(str(value)))]
_Text: TypeAlias = Annotated[str, BeforeValidator(_text)]


class _RuleModel(BaseModel):
    model_config = ConfigDict(extra="forbid")

    alert: _Text = ""
    record: _Text = ""
    expr: _Text
    hold: _Duration = Field(0.0, alias="for")
    keep_firing_for: _Duration = 0.0
    labels: dict[str, _Text] = {}
    annotations: dict[str, _Text] = {}

    @model_validator(mode="after")
    def _is_one_kind(self) -> "_RuleModel":
        if bool(self.alert) == bool(self.record):
            raise ValueError("needs either alert or record")
        if self.record and {"hold", "keep_firing_for", "annotations"} & self.model_fields_set:
            raise ValueError("a recording rule has no for, keep_firing_for or annotations")
        if self.record and not _METRIC_NAME.fullmatch(self.record):
            raise ValueError(f"{self.record!r} is not a metric name")
        for name in (*self.labels, *self.annotations):
            if not _LABEL_NAME.fullmatch(name) or name == "__name__":
                raise ValueError(f"a rule can set no label or annotation {name!r}")
        return self


class _GroupModel(BaseModel):
    """`interval` is accepted and ignored: all rules share one evaluation interval."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1)]
    interval: _Duration = 0.0
    rules: list[Any] = []


class _FileModel(BaseModel):
    model_config = ConfigDict(extra="forbid")

    groups: list[_GroupModel] = []


class StrictLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A YAML loader that refuses a key written twice; PyYAML would silently drop the first.

    libyaml's loader is ten times as fast as PyYAML's own, but not part of every build of PyYAML.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping, or raise ConstructorError; keys merged by `<<` count as written too."""
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        if len(mapping) != len(node.value):
            raise yaml.constructor.ConstructorError(
                None, None, "a key is written twice in one mapping", node.start_mark
            )
        return mapping


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.glob("*.yml") if not file.name.endswith(TEST_SUFFIX))


def _raw_rules(path: Path) -> list[tuple[str, int, Any]]:
    """Group name, number in the group (from 1), and unchecked content of each rule of a file."""
    groups = read_file(path, StrictLoader, _FileModel, _FORM).groups
    names = [group.name for group in groups]
    for name in names:
        if names.count(name) > 1:
            raise RuleError(
                f"group {name!r} is defined twice", where=str(path), remedy="rename one of them"
            )
    return [
        (group.name, number, raw) for group in groups for number, raw in enumerate(group.rules, 1)
    ]


def read_file(path: Path, loader: type[StrictLoader], model: type[ModelT], form: str) -> ModelT:
    """Read YAML with `loader` as `model`. Raises RuleError; wrong content has the remedy `form`."""
    try:
        document = yaml.load(path.read_bytes(), loader)  # safe: `loader` is a SafeLoader
    except OSError as problem:
        raise RuleError(
            f"cannot be read: {problem.strerror}", where=str(path), remedy="check name and rights"
        ) from problem
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise _unreadable(problem, path) from problem
    try:
        return model.model_validate({} if document is None else document)
    except ValidationError as problem:
        raise _invalid(problem, str(path), form) from None


def _build(raw: Any, number: int, parse: Callable[[str], E], file: str, group: str) -> Rule[E]:
    named = raw.get("alert") or raw.get("record") if isinstance(raw, dict) else None
    where = f"{file}: group {group}, rule {number}" + (f" ({named})" if named else "")
    try:
        model = _RuleModel.model_validate(raw)
    except ValidationError as problem:
        raise _invalid(problem, where, _FORM) from None
    try:
        expr = parse(model.expr)
        if model.record:
            return RecordingRule(model.record, expr, dict(model.labels), file, group)
        return AlertRule(
            name=model.alert,
            expr=expr,
            hold=model.hold,
            keep_firing_for=model.keep_firing_for,
            labels=_templates("label", model.labels),
            annotations=_templates("annotation", model.annotations),
            file=file,
            group=group,
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


def _unreadable(problem: Exception, path: Path) -> RuleError:
    if isinstance(problem, yaml.MarkedYAMLError) and problem.problem_mark is not None:
        mark = problem.problem_mark
        where = f"{path}, line {mark.line + 1}, column {mark.column + 1}"
        context = f" ({problem.context})" if problem.context else ""
        return RuleError(f"{problem.problem}{context}", where=where, remedy="write it as YAML")
    line = " ".join(str(problem).split())
    return RuleError(line, where=str(path), remedy="write it as YAML")


def _invalid(problem: ValidationError, where: str, form: str) -> RuleError:
    key, what = first_problem(problem)
    return RuleError(f"{key}: {what}" if key else what, where=where, remedy=form)
