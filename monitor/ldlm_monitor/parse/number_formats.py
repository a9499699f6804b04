"""The YAML schema of lines and bars that give numbers."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ldlm_monitor.parse.patterns import UNITS


class DefinitionPart(BaseModel):
    """Any part of a definition file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SampleExample(DefinitionPart):
    """A record and the sample that it must give; `values` are complete."""

    line: str
    step: int | None = None
    epoch: float | None = None
    rank: int | None = None
    values: dict[str, float]


class NumberSpec(DefinitionPart):
    """How a number is printed.

    `unit`: its unit (`patterns.UNITS`), whatever unit is printed. `unknown`: numbers that
    stand for no value, or for one too small to print. `finite`: NaN and infinities stand
    for no value.
    """

    unit: str | None = None
    unknown: tuple[float, ...] = ()
    finite: bool = False

    @field_validator("unit")
    @classmethod
    def _is_a_unit(cls, unit: str | None) -> str | None:
        if unit is not None and unit not in UNITS:
            raise ValueError(f"{unit} is not a unit; the units are {', '.join(UNITS)}")
        return unit


class GroupValue(NumberSpec):
    """The named group that a value is read from."""

    group: str


class NamedKey(NumberSpec):
    """The canonical name of a key; `step` and `epoch` set the sample's fields."""

    name: str


class Pairs(DefinitionPart):
    """Consecutive `key: value` items, the first at the group `start`.

    `item` has the groups `key` and `value`. A value must be followed by one of the bytes
    in `closed_by` (with a newline there, also by the end of the line), so that a cut value
    is unknown. Keys are mapped by `names`, else by the shared vocabulary; those of `skip`
    are left out.
    """

    item: str
    start: str
    closed_by: str
    names: dict[str, str | NamedKey] = Field(default_factory=dict)
    skip: tuple[str, ...] = ()


class Continued(DefinitionPart):
    """A record of several lines: lines that match `pattern` continue the one before.

    `until`, if set, matches the last one.
    """

    pattern: str
    until: str | None = None


class SampleLine(DefinitionPart):
    """A line that gives a sample: groups `step`, `epoch` and `rank`, and the mapped values.

    `trigger`: `{{loss}}` stands for a loss with a number, which most such lines have;
    `contains` is a text that the line also contains, checked before `pattern`. `anywhere`:
    the match may begin after any logger's prefix. `free`: after the match, fields of any
    form are read. `fallback`: only for lines that no other rule matches. `needs`: of each
    list, one name (`loss*`: or one with this prefix) must have been read, `step` and
    `epoch` included, or the line does not match. `lifecycle`: an event that the line also
    gives. `experimental`: no real log has confirmed this line, though others of its format.
    """

    name: str
    experimental: bool = False
    trigger: str
    contains: str = ""
    pattern: str = ""
    anywhere: bool = False
    free: bool = False
    fallback: bool = False
    values: dict[str, str | GroupValue] = Field(default_factory=dict)
    pairs: Pairs | None = None
    continued: Continued | None = None
    needs: tuple[tuple[str, ...], ...] = ()
    lifecycle: Literal["run_finished"] | None = None
    examples: tuple[SampleExample, ...] = Field(min_length=1)
    counter_examples: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> SampleLine:
        if not self.pattern and not self.free:
            raise ValueError("a line needs a pattern, unless it is `free`")
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
    has the keys of the postfix that are read; without it all are, by the shared vocabulary,
    and a bar that is cut does not count. `train`: the bar counts the run's steps; `epoch`:
    those of one epoch; `eval`: those of an evaluation; `skip`: batches that a resumed run
    skips; `unnamed`: it has no description, and the file's other bars decide what it counts.
    """

    name: str
    pattern: str
    phase: Literal["train", "epoch", "eval", "skip", "unnamed"]
    values: dict[str, str | GroupValue] = Field(default_factory=dict)
    postfix: dict[str, str | NamedKey] | None = None
    skip: tuple[str, ...] = ()
    examples: tuple[SampleExample, ...] = Field(min_length=1)
    counter_examples: tuple[str, ...] = ()
