"""Definition files: their YAML schema, and loading.

A definition file has entries under `bars`, `lines` and `events`. An entry has a `trigger` (a
Hyperscan expression that selects records; bars have the same ones), a `pattern` (re2, finds
the fields), and a mapping to canonical names. Its examples and counter-examples are its tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ldlm_monitor.base.errors import FormatError, first_problem
from ldlm_monitor.base.meaning import Cause, Ending, Fault, How, Phase, Word
from ldlm_monitor.base.names import Severity
from ldlm_monitor.base.records import Scalar
from ldlm_monitor.base.text.yaml_loader import YAML_LOADER
from ldlm_monitor.logs.parse.patterns import NumberSpec, check_groups

Role: TypeAlias = Literal["root", "evidence", "victim", "death", "context", "progress"]
"""What an event is in a failure: its possible cause (`root`), `evidence` for the cause, a
consequence (`victim`), the end of a process (`death`); `context` and `progress` are no part."""
Conversion: TypeAlias = Literal["int", "float", "str", "bytes", "exit_code"]
"""How a field's text is read: `bytes` is a size with a unit, `exit_code` an integer (a negative one
also sets the field `signal`)."""

PACKAGED = Path(__file__).parent / "data"  # the folder of the packaged definition files


class DefinitionPart(BaseModel):
    """A part of a definition file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class SampleExample(DefinitionPart):
    """A record and the sample that it must give, with exactly these `values`."""

    line: str
    step: int | None = None
    epoch: float | None = None
    rank: int | None = None
    values: dict[str, float]


class Pairs(DefinitionPart):
    """Consecutive `key: value` items; `start` names the pattern's group where the first begins.

    The pattern `item` has the groups `key` and `value`. A value is read only if a byte of
    `closed_by` follows (the end of a line counts as a newline), as the value may be cut
    otherwise. Keys are mapped by `names`, else by the shared vocabulary; keys in `skip` are
    ignored.
    """

    item: str
    start: str
    closed_by: str
    names: dict[str, NumberSpec] = Field(default_factory=dict)
    skip: tuple[str, ...] = ()


class Continued(DefinitionPart):
    """A sample of several lines: further ones match `pattern`, the last also `until`, if set."""

    pattern: str
    until: str | None = None


class SampleLine(DefinitionPart):
    """A line that gives a sample: `pattern` has the groups `step`, `epoch`, `rank`, and values.

    `trigger`: may contain `{{loss}}` (a loss with a number) and `{{glog}}` (a header). `contains`:
    a text of the line, checked before `pattern`, which is slower. `anywhere`: the match may
    begin anywhere, not only after known prefixes. `needs`: of each list, at least one name
    must have been read (`step`, `epoch` or a value; `loss*` is any with this prefix),
    otherwise the line does not match. `experimental`: no real log has confirmed this line of
    the format.
    """

    name: str
    experimental: bool = False
    trigger: str
    contains: str = ""
    pattern: str
    anywhere: bool = False
    values: dict[str, NumberSpec] = Field(default_factory=dict)
    pairs: Pairs | None = None
    continued: Continued | None = None
    needs: tuple[tuple[str, ...], ...] = ()
    examples: tuple[SampleExample, ...] = Field(min_length=1)
    counter_examples: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> SampleLine:
        check_groups(self.pattern, self.values)
        pairs = self.pairs
        if pairs is None:
            return self
        if f"(?P<{pairs.start}>" not in self.pattern:
            raise ValueError(f"the pattern has no group {pairs.start}, where the pairs start")
        if "(?P<key>" not in pairs.item or "(?P<value>" not in pairs.item:
            raise ValueError("the item of pairs needs the groups key and value")
        return self


class Bar(DefinitionPart):
    """A tqdm progress bar: `pattern` matches its whole description.

    The groups `step`, `epoch` and those in `values` are read from the description. `postfix`
    has the keys of the postfix that are read; without it all keys are read by the shared
    vocabulary, but not from a bar that is cut. `skip` are values to drop. `phase` says what
    the bar counts: the steps of the run (`train`), of one epoch (`epoch`) or of an evaluation
    (`eval`), or the batches that a resumed run skips (`skip`); a bar without description
    (`unnamed`) is of the training or of an evaluation, which the file's earlier bars decide.
    """

    name: str
    pattern: str
    phase: Literal["train", "epoch", "eval", "skip", "unnamed"]
    values: dict[str, NumberSpec] = Field(default_factory=dict)
    postfix: dict[str, NumberSpec] | None = None
    skip: tuple[str, ...] = ()
    examples: tuple[SampleExample, ...] = Field(min_length=1)
    counter_examples: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> Bar:
        check_groups(self.pattern, self.values)
        return self


class EventExample(DefinitionPart):
    """A record, or a block of lines, and the event that it must give.

    `fields` are a subset of the event's; `kind` and `severity` default to the definition's. Without
    `role` or `message` any is accepted, without `rank` or `time` the event must have none.
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
    """One wording of an event. Without `pattern`, the event is recognised by `level`."""

    trigger: str
    pattern: str | None = None


class _OtherEvent(DefinitionPart):
    kind: str
    severity: Severity
    role: Role


class AlsoEvent(_OtherEvent):
    """A second event of the same match, with those fields of the first that `fields` names."""

    fields: tuple[str, ...] = ()


class FiniteEvent(_OtherEvent):
    """Another kind, severity and role for the event if the number in `field` is finite."""

    field: str


class BlockRow(DefinitionPart):
    """A further line of a block; `after`, if set, must match the block's line before it."""

    pattern: str
    after: str | None = None


class FieldSample(DefinitionPart):
    """A sample of an event's fields: `step` names one, `values` maps canonical names to fields."""

    step: str
    values: dict[str, str]


class Assignment(DefinitionPart):
    """A field: groups `name` (mapped by `names`) and `value` have the texts of name and value."""

    name: str
    value: str
    names: dict[str, str] = Field(default_factory=dict)


class ExceptionEvent(DefinitionPart):
    """Severity and role of a traceback whose exception line matches `pattern`."""

    pattern: str
    severity: Severity
    role: Role


class EventDefinition(DefinitionPart):
    """An event kind: how to recognise it, its fields, severity and role.

    `at`: where the pattern may begin in the text after the prefixes: at its `start`,
    `anywhere`, or anywhere after another writer's text (`glued`); `beside`: anywhere, whatever
    else the line is, which it stays. Text after a progress bar is searched as with `anywhere`.
    `shell`: only in `set -x` traces. `exception`: a traceback whose exception matches gets this
    kind. `level`: any record of this level that nothing else matched. `assemble`: the kind of
    block that the event opens. `fields`: how groups are read (default `str`); `rename`:
    replacements for a group's texts; `set`: constant fields.
    """

    kind: str
    role: Role
    severity: Severity
    family: str | None = None
    shapes: tuple[EventShape, ...] = Field(min_length=1)
    assemble: Literal["line", "rows", "traceback", "failure_table", "stacks"] = "line"
    at: Literal["start", "anywhere", "glued", "beside"] = "anywhere"
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
            raise ValueError("the event needs either a pattern in every shape or a level")
        if (self.assemble == "rows") != bool(self.rows):
            raise ValueError("`rows` and `assemble: rows` need each other")
        return self


class AccusationKeys(DefinitionPart):
    """How an event accuses ranks; see `base.meaning.AccusingKind`."""

    how: How
    order: int = 0
    who: str = ""
    what: str = ""


class MeaningKeys(DefinitionPart):
    """What a kind means; see `base.meaning.Meaning`. Without `cause`: by family and role."""

    cause: Cause | None = None
    words: tuple[Word, ...] = Field(default=(), alias="is")
    ends: Ending | None = None
    lasts: bool = False
    opens: bool = False
    fault: Fault | None = None
    shows: tuple[Fault, ...] = ()
    accuses: AccusationKeys | None = None
    pause: tuple[Phase, Phase] | None = None
    counts: Literal["skipped", "restarts"] | None = None
    writer: Literal["scheduler"] | None = None


class MeaningCase(MeaningKeys):
    """Keys that hold where fields of the event (also `message`, `severity`, `role`) match `when`.

    They hold whatever the role, as the case looks at the event itself.
    """

    when: dict[str, str] = Field(min_length=1)


class KindMeaning(MeaningKeys):
    """What a kind of event means; of its `cases`, each that holds changes that, in their order."""

    cases: tuple[MeaningCase, ...] = ()


class Definitions(DefinitionPart):
    """One definition file. Patterns in `benign` suppress events that are recognised by level.

    `meanings`: by kind, what its events mean.

    `priority`: the rules of the file with the lowest are tried first. `experimental`: the
    definitions are made from the trainer's source code, not from a log.
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
    meanings: dict[str, KindMeaning] = Field(default_factory=dict)


def document(path: Path) -> Any:
    """The YAML of a file. Raises `FormatError`."""
    try:
        return yaml.load(path.read_bytes(), Loader=YAML_LOADER)
    except OSError as error:
        raise FormatError(
            f"cannot be read ({error.strerror})", where=str(path), remedy="check --formats"
        ) from error
    except (yaml.YAMLError, ValueError) as error:  # `ValueError`: no UTF-8, or a date such as 02-30
        place = " ".join(str(error).split())
        raise FormatError(
            f"is not YAML: {place}", where=str(path), remedy="use UTF-8, and single-quote texts"
        ) from error


def load(path: Path, known: Any = None) -> Definitions:
    """Validate a definition file, and read it unless its YAML is `known`. Raises `FormatError`."""
    try:
        return Definitions.model_validate(document(path) if known is None else known)
    except ValidationError as error:
        key, what = first_problem(error)
        raise FormatError(
            what,
            where=f"{path}: {key or 'the whole file'}",
            remedy="see the files in ldlm_monitor/logs/parse/data for the form",
        ) from error


def packaged_files() -> tuple[Path, ...]:
    """The definition files of the package, formats before events."""
    return (*sorted(PACKAGED.glob("formats/*.yml")), *sorted(PACKAGED.glob("events/*.yml")))
