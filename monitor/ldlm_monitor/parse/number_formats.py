"""Lines and bars that give numbers, as data: their part of the YAML schema."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ldlm_monitor.parse.patterns import UNITS


class Entry(BaseModel):
    """Any part of a definition: unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SampleExample(Entry):
    """A record and the sample that it must give: `values` are all of them."""

    line: str
    step: int | None = None
    epoch: float | None = None
    rank: int | None = None
    values: dict[str, float]


class Bar(Entry):
    """A tqdm progress bar, known by its description.

    `postfix` maps the postfix's keys to canonical names; a key that is not
    listed is left out. `placeholders` are keys whose NaN is only a placeholder.
    """

    description: str
    phase: Literal["train", "eval", "skip"]
    postfix: dict[str, str] = Field(default_factory=dict)
    placeholders: tuple[str, ...] = ()
    examples: tuple[SampleExample, ...] = Field(min_length=1)
    counter_examples: tuple[str, ...] = ()


class Told(Entry):
    """How a number is told.

    `unit`: what it is counted in (`quantities.UNITS`), whatever stands behind it.
    `unknown`: numbers that only say that there is none yet, or that are too small to
    print. `finite`: so does NaN or an infinity.
    """

    unit: str | None = None
    unknown: tuple[float, ...] = ()
    finite: bool = False

    @field_validator("unit")
    @classmethod
    def _is_a_unit(cls, unit: str | None) -> str | None:
        if unit is not None and unit not in UNITS:
            raise ValueError(f"{unit} is no unit; there are {', '.join(UNITS)}")
        return unit


class Value(Told):
    """A named group as a value."""

    group: str


class Name(Told):
    """The canonical name that a key stands for; `step` and `epoch` are the sample's own."""

    name: str


class Pairs(Entry):
    """`key: value` items that follow one another, the first at the group `start`.

    `item` has the groups `key` and `value`. What follows a value must be one of the
    bytes in `closed_by` (a newline there: or the end of the line), so that a value
    cut short is unknown. A key means what `names` says, or the shared vocabulary;
    those of `skip` are left out.
    """

    item: str
    start: str
    closed_by: str
    names: dict[str, str | Name] = Field(default_factory=dict)
    skip: tuple[str, ...] = ()


class Continued(Entry):
    """A record over several lines: those that match `pattern` belong to the one before.

    `until` matches the last of them, where there is one.
    """

    pattern: str
    until: str | None = None


class SampleLine(Entry):
    """A line that gives a sample: groups `step`, `epoch` and `rank`, and the mapped values.

    `trigger`: `{{loss}}` stands for a loss with a number, which most such lines have;
    `contains` is a text that these ones hold as well, looked for before `pattern` is.
    `anywhere`: it may begin behind any logger's prefix. `free`: behind what `pattern`
    matches, fields are found in whatever form they have. `fallback`: only for lines
    that no other rule knows. `needs`: of each list one name must have been found
    (`loss*`: or one that begins so), `step` and `epoch` included, or the line is
    something else. `lifecycle`: what the line says of the run as well. `experimental`: no
    real log has confirmed this line, though others of its format.
    """

    name: str
    experimental: bool = False
    trigger: str
    contains: str = ""
    pattern: str = ""
    anywhere: bool = False
    free: bool = False
    fallback: bool = False
    values: dict[str, str | Value] = Field(default_factory=dict)
    pairs: Pairs | None = None
    continued: Continued | None = None
    needs: tuple[tuple[str, ...], ...] = ()
    lifecycle: Literal["run_finished"] | None = None
    examples: tuple[SampleExample, ...] = Field(min_length=1)
    counter_examples: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> SampleLine:
        if not self.pattern and not self.free:
            raise ValueError("a line needs a pattern, unless its fields are free")
        pairs = self.pairs
        if pairs is None:
            return self
        if f"(?P<{pairs.start}>" not in self.pattern:
            raise ValueError(f"the pattern has no group {pairs.start}, where the pairs start")
        if "(?P<key>" not in pairs.item or "(?P<value>" not in pairs.item:
            raise ValueError("the item of pairs has the groups key and value")
        return self


class OtherBar(Entry):
    """A bar of any trainer: `pattern` matches its whole description.

    The groups `step`, `epoch` and those in `values` are read from the description;
    a postfix by the shared vocabulary. `train`: the bar counts the run's steps;
    `epoch`: those of one epoch; `eval`: those of an evaluation; `unnamed`: it has no
    description, and which of these it counts depends on the file's other bars.
    """

    name: str
    pattern: str
    phase: Literal["train", "epoch", "eval", "unnamed"]
    values: dict[str, str | Value] = Field(default_factory=dict)
    skip: tuple[str, ...] = ()
    examples: tuple[SampleExample, ...] = Field(min_length=1)
    counter_examples: tuple[str, ...] = ()
