"""Definition files: the YAML schema of events, and loading.

A definition file has any of `bars`, `lines` and `events`. Each entry has a
`trigger` (a Hyperscan expression that selects records), a `pattern` (re2, finds the
fields), a mapping to canonical names, and examples and counter-examples with the expected
values, which are the tests of the entry.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeAlias

import yaml
from pydantic import Field, ValidationError, model_validator

from ldlm_monitor.model.errors import FormatError
from ldlm_monitor.model.records import Scalar, Severity
from ldlm_monitor.parse.number_formats import Bar, DefinitionPart, SampleLine

Role: TypeAlias = Literal["root", "evidence", "victim", "death", "context", "progress"]
Conversion: TypeAlias = Literal["int", "float", "str", "bytes", "scalar", "exit_code"]

PACKAGED = Path(__file__).parent / "data"


class EventExample(DefinitionPart):
    """A record, or a block of lines, and the event that it must give.

    `fields` are a subset of the event's; `kind` and `severity` default to the definition's.
    """

    line: str
    kind: str | None = None
    severity: Severity | None = None
    role: Role | None = None
    rank: int | None = None
    time: float | None = None
    message: str | None = None
    fields: dict[str, Any] = Field(default_factory=dict)


class EventShape(DefinitionPart):
    """One wording of an event. Without `pattern`, the record's level decides."""

    trigger: str
    pattern: str | None = None


class AlsoEvent(DefinitionPart):
    """A second event at the same place, with the fields named."""

    kind: str
    severity: Severity
    role: Role
    fields: tuple[str, ...] = ()


class FiniteEvent(DefinitionPart):
    """What the event is instead if the number in `field` is finite."""

    field: str
    kind: str
    severity: Severity
    role: Role


class BlockRow(DefinitionPart):
    """A further line of a block; `after` must match the block's line before it."""

    pattern: str
    after: str | None = None


class FieldSample(DefinitionPart):
    """A sample made of an event's fields; `values` maps canonical names to fields."""

    step: str
    values: dict[str, str]


class Assignment(DefinitionPart):
    """A field whose name is in the text; `names` maps it, and restricts it if `only`."""

    name: str
    value: str
    names: dict[str, str] = Field(default_factory=dict)
    only: bool = False


class ExceptionEvent(DefinitionPart):
    """Severity and role of a traceback whose exception line matches `pattern`."""

    pattern: str
    severity: Severity
    role: Role


class EventDefinition(DefinitionPart):
    """An event kind: how to recognise it, its fields, severity and role.

    `at`: where in the text after the prefixes the pattern may begin (text glued to a bar
    is searched anywhere); `glued`: anywhere, and the text before it is another writer's.
    `shell`: only in `set -x` traces. `exception`: a traceback whose exception matches is
    of this kind. `level`: any record of this level that nothing else matched.
    `assemble`: the kind of block that the event opens.
    """

    kind: str
    role: Role
    severity: Severity
    family: str | None = None
    shapes: tuple[EventShape, ...] = Field(min_length=1)
    assemble: Literal["line", "rows", "traceback", "failure_table", "stacks"] = "line"
    at: Literal["start", "anywhere", "glued"] = "anywhere"
    shell: bool = False
    exception: bool = False
    level: Literal["error", "warning"] | None = None
    fields: dict[str, Conversion] = Field(default_factory=dict)
    rename: dict[str, dict[str, str]] = Field(default_factory=dict)
    set: dict[str, Scalar] = Field(default_factory=dict)
    assign: Assignment | None = None
    rows: tuple[BlockRow, ...] = ()
    until: str | None = None
    finite: FiniteEvent | None = None
    also: tuple[AlsoEvent, ...] = ()
    sample: FieldSample | None = None
    exceptions: tuple[ExceptionEvent, ...] = ()
    examples: tuple[EventExample, ...] = Field(min_length=1)
    counter_examples: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> EventDefinition:
        patterned = all(shape.pattern is not None for shape in self.shapes)
        if patterned == (self.level is not None):
            raise ValueError("every shape needs a pattern, unless the event has a level")
        if (self.assemble == "rows") != bool(self.rows):
            raise ValueError("`rows` and `assemble: rows` need each other")
        return self


class Definitions(DefinitionPart):
    """One definition file. `benign` patterns suppress events that only have a level.

    `priority`: files with a lower one are compiled first. `experimental`: written from the
    trainer's source, without a log.
    """

    format: str
    source: str = ""
    family: str = "process"
    priority: int = 0
    experimental: bool = False
    bars: tuple[Bar, ...] = ()
    lines: tuple[SampleLine, ...] = ()
    events: tuple[EventDefinition, ...] = ()
    benign: tuple[str, ...] = ()


def load(path: Path) -> Definitions:
    """Read and validate a definition file. Raises `FormatError`."""
    try:
        document = yaml.load(
            path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        )
    except OSError as error:
        raise FormatError(
            f"cannot be read ({error.strerror})", where=str(path), remedy="check --formats"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        place = " ".join(str(error).split())
        raise FormatError(
            f"is not YAML: {place}", where=str(path), remedy="quote patterns with single quotes"
        ) from error
    try:
        return Definitions.model_validate(document)
    except ValidationError as error:
        raise _format_error(path, error) from error


def packaged_files() -> tuple[Path, ...]:
    """The definition files of the package, formats before events."""
    return (*sorted(PACKAGED.glob("formats/*.yml")), *sorted(PACKAGED.glob("events/*.yml")))


def _format_error(path: Path, error: ValidationError) -> FormatError:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"]) or "the whole file"
    remedy = {
        "missing": "add it",
        "extra_forbidden": "remove it, or correct its spelling",
    }.get(first["type"], "see the files in ldlm_monitor/parse/data for the form")
    return FormatError(first["msg"], where=f"{path}: {key}", remedy=remedy)
