"""Formats and event kinds as data: the YAML schema, loaded and compiled once.

A definition file holds any of `bars`, `other_bars`, `lines` and `events`. Each entry has a
`trigger` (Hyperscan: decides which records are looked at), a `pattern` (re2:
finds the fields), a mapping to canonical names, and examples with the expected
values and counter-examples, which are the tests of the entry.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeAlias

import yaml
from pydantic import Field, ValidationError, model_validator

from ldlm_monitor.model.errors import FormatError
from ldlm_monitor.model.records import Severity
from ldlm_monitor.parse.number_formats import Bar, Entry, OtherBar, SampleLine

Role: TypeAlias = Literal["root", "evidence", "victim", "death", "context", "progress"]
Conversion: TypeAlias = Literal["int", "float", "str", "bytes", "scalar", "exit_code"]
Scalar: TypeAlias = bool | int | float | str | None

PACKAGED = Path(__file__).parent / "data"
OURS = "mmldlm"


class EventExample(Entry):
    """A record, or a block of them, and the event that it must give.

    `fields` are a subset of the event's; `kind` and `severity` default to the rule's.
    """

    line: str
    kind: str | None = None
    severity: Severity | None = None
    role: Role | None = None
    rank: int | None = None
    time: float | None = None
    message: str | None = None
    fields: dict[str, Any] = Field(default_factory=dict)


class Shape(Entry):
    """One wording of an event. Without `pattern`, the record's level decides."""

    trigger: str
    pattern: str | None = None


class Also(Entry):
    """A second event at the same place, with the fields named."""

    kind: str
    severity: Severity
    role: Role
    fields: tuple[str, ...] = ()


class Finite(Entry):
    """What the event is instead where the number in `field` turns out finite."""

    field: str
    kind: str
    severity: Severity
    role: Role


class Row(Entry):
    """A following line of a block; `after` must have matched the block's line before it."""

    pattern: str
    after: str | None = None


class FromFields(Entry):
    """A sample made of an event's fields: canonical name to field."""

    step: str
    values: dict[str, str]


class Assignment(Entry):
    """A field whose name stands in the text: `names` maps and, if `only`, restricts."""

    name: str
    value: str
    names: dict[str, str] = Field(default_factory=dict)
    only: bool = False


class Exceptional(Entry):
    """What a traceback is when the line of its exception begins with `pattern`."""

    pattern: str
    severity: Severity
    role: Role


class Event(Entry):
    """An event kind: how to know it, what its fields are, what it means.

    `at`: where in the peeled text the pattern may begin (text glued to a bar is
    searched either way); `glued`: anywhere, and what stands in front is another
    writer's, not part of the event. `shell`: it is looked for in `set -x` traces and
    nowhere else. `exception`: it also names a traceback whose exception it
    matches. `level`: any record that a logger marked so and nothing else matched.
    """

    kind: str
    role: Role
    severity: Severity
    family: str | None = None
    shapes: tuple[Shape, ...] = Field(min_length=1)
    assemble: Literal["line", "rows", "traceback", "failure_table", "stacks"] = "line"
    at: Literal["start", "anywhere", "glued"] = "anywhere"
    shell: bool = False
    exception: bool = False
    level: Literal["error", "warning"] | None = None
    fields: dict[str, Conversion] = Field(default_factory=dict)
    rename: dict[str, dict[str, str]] = Field(default_factory=dict)
    set: dict[str, Scalar] = Field(default_factory=dict)
    assign: Assignment | None = None
    rows: tuple[Row, ...] = ()
    until: str | None = None
    finite: Finite | None = None
    also: tuple[Also, ...] = ()
    sample: FromFields | None = None
    exceptions: tuple[Exceptional, ...] = ()
    examples: tuple[EventExample, ...] = Field(min_length=1)
    counter_examples: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Event:
        patterned = all(shape.pattern is not None for shape in self.shapes)
        if patterned == (self.level is not None):
            raise ValueError("every shape needs a pattern, unless the event has a level")
        if (self.assemble == "rows") != bool(self.rows):
            raise ValueError("rows belong to `assemble: rows`, and to nothing else")
        return self


class Definitions(Entry):
    """One definition file. `benign` patterns silence events that are known by level only.

    `experimental`: written from the trainer's source, no log of it was at hand.
    """

    format: str
    source: str = ""
    family: str = "process"
    experimental: bool = False
    bars: tuple[Bar, ...] = ()
    other_bars: tuple[OtherBar, ...] = ()
    lines: tuple[SampleLine, ...] = ()
    events: tuple[Event, ...] = ()
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
    """The definition files that come with the package, formats first, MM-LDLM's before others."""
    numbers = sorted(PACKAGED.glob("formats/*.yml"), key=lambda path: (path.stem != OURS, path))
    return (*numbers, *sorted(PACKAGED.glob("events/*.yml")))


def _format_error(path: Path, error: ValidationError) -> FormatError:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"]) or "the whole file"
    remedy = {
        "missing": "add it",
        "extra_forbidden": "remove it, or correct its spelling",
    }.get(first["type"], "see the files in ldlm_monitor/parse/data for the form")
    return FormatError(first["msg"], where=f"{path}: {key}", remedy=remedy)
