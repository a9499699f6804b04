"""What to do about a failure: the first rule of `data/decisions.yml` that its facts meet.

A table over an incident's facts, and no model: a decision names its rule, to be read there.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from ldlm_monitor.base.incident_view import (
    Confidence,
    DecisionView,
    DecisionWord,
    IncidentView,
    View,
)
from ldlm_monitor.base.records import Position
from ldlm_monitor.base.snapshot import Health
from ldlm_monitor.base.text.yaml_loader import packaged_yaml

Numbers = Literal[
    "finite", "unseen", "missing", "never", "early", "lasting",
    "passed", "skipped", "partly", "untested",
]  # fmt: skip
"""A run's loss: always a number; not logged; came regularly, and no longer; never a number; none
since one of the first steps, before a checkpoint; none any more; one again; one, but many steps
were skipped; not seen to be one in all that an update uses: a rank, a part or the gradient still is
none, or comes and goes; always or again one, but that of the last evaluation is none."""
ILL: Final[tuple[Health, ...]] = ("UNHEALTHY", "CRITICAL")  # with which no run goes on unseen
OTHERS_SHARE: Final = 0.25
"""Share of a GPU's memory that other processes hold, from which an out-of-memory error is theirs.
CUDA's own context, which no allocator counts, takes up to 1.5 GiB: 20 % of a small GPU of 8 GiB."""
_UNIT: Final = {"KiB": 2**-20, "MiB": 2**-10, "GiB": 1.0, "TiB": 2.0**10, "bytes": 2**-30}
_AMOUNT: Final = r"([\d.]+) (KiB|MiB|GiB|TiB|bytes)"
_TOTAL: Final = re.compile(f"total capacity of {_AMOUNT}|{_AMOUNT} total capacity")
_FREE: Final = re.compile(f"{_AMOUNT} (?:is )?free")
_OWN: Final = (
    re.compile(f"this process has {_AMOUNT} memory in use"),
    re.compile(f"{_AMOUNT} (?:reserved in total|cached)"),
    re.compile(f"{_AMOUNT} already allocated"),
)
_RANK: Final = re.compile(r"\[?(?:default\d*|rank|Rank) ?\d+\]?:?")
_NUMBER: Final = re.compile(r"0x[0-9a-f]+|\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DecisionFacts:
    """What rules look at: the first cause of a failure, and its run. `failed`: there is one.

    `kind`, `tier`, `message`: as in `RootView`. `steps`: whether the attempt took one. `numbers`:
    the run's loss. `repeated`: an earlier attempt failed so at the same step. `state`, `health`:
    the run's.
    """

    kind: str = ""
    tier: str = ""
    message: str = ""
    steps: Literal["none", "some"] = "some"
    numbers: Numbers = "finite"
    repeated: bool = False
    state: str = "running"
    health: Health = "HEALTHY"
    failed: bool = False
    confidence: Confidence = "confirmed"
    node: str | None = None
    evidence: tuple[Position, ...] = ()
    why: tuple[str, ...] = ()
    rollback_step: int | None = None
    skip_steps: tuple[int, int] | None = None

    @property
    def memory(self) -> Literal["own", "other"]:
        """Who held the GPU's memory, by the sums of an out-of-memory error."""
        return "other" if held_by_others(self.message) > OTHERS_SHARE else "own"


Asked = Literal[
    "kind", "tier", "text", "steps", "numbers", "memory", "repeated", "state", "health", "failed"
]


class DecisionRule(BaseModel):
    """A row of the table: `then` where all of `when` is so, an absent key being so anyway.

    `text` is a regular expression, a list is one of several values. `do`: what to do, in a few
    words. `confidence`: the most that it may claim. Examples: sets of facts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    rule: str
    when: dict[Asked, str | bool | tuple[str, ...]] = {}
    then: DecisionWord
    do: str = ""
    confidence: Literal["confirmed", "probable", "weak"] = "confirmed"
    because: str
    examples: tuple[dict[str, str | bool], ...] = ()
    counter_examples: tuple[dict[str, str | bool], ...] = ()

    def holds(self, facts: DecisionFacts) -> bool:
        """Whether the facts meet it."""
        return all(
            re.search(str(wanted), facts.message) is not None
            if name == "text"
            else getattr(facts, name) in (wanted if isinstance(wanted, tuple) else (wanted,))
            for name, wanted in self.when.items()
        )


class DecisionTable(View):
    """`data/decisions.yml`: `costs` of a wrong decision, and the rules in their order."""

    costs: dict[DecisionWord, str]
    rules: tuple[DecisionRule, ...]


@cache
def decision_table() -> DecisionTable:
    """The packaged table."""
    return DecisionTable.model_validate(packaged_yaml(__package__, "data/decisions.yml"))


@lru_cache(maxsize=1024)  # a snapshot asks again for each incident that did not change
def decide(facts: DecisionFacts) -> DecisionView:
    """The decision of the first rule that holds, with the facts' evidence."""
    table = decision_table()
    rule = next(each for each in table.rules if each.holds(facts))
    order = ("weak", "probable", "confirmed")
    known = "weak" if facts.confidence == "none" else facts.confidence
    goes_back = rule.then == "ROLLBACK"
    # Two attempts that failed alike confirm each other.
    sure = (
        rule.confidence
        if rule.when.get("repeated")
        else min(rule.confidence, known, key=order.index)
    )
    return DecisionView(
        decision=rule.then,
        do=rule.do,
        confidence=sure,
        reasons=(rule.because, *((facts.message,) if facts.message else ()), *facts.why)[:4],
        node=facts.node if rule.then == "RESTART_WITHOUT" else None,
        rollback_step=facts.rollback_step if goes_back else None,
        skip_steps=facts.skip_steps if goes_back else None,
        evidence=facts.evidence,
        rule=rule.rule,
        if_wrong=table.costs[rule.then],
    )


def fingerprint(incident: IncidentView) -> tuple[str, str]:
    """Kind and text of an incident's first cause without rank, node and numbers.

    Equal for the same error of another attempt, which other ranks, hosts and pids report.
    """
    root = incident.root
    text = root.message
    for name in {root.host, root.node} - {None, ""}:
        text = text.replace(str(name), "")
    return root.kind, _NUMBER.sub("#", _RANK.sub("", text)).strip()


def is_repeated(incident: IncidentView, past: Iterable[IncidentView]) -> bool:
    """Whether an earlier attempt of the run failed in the same way at the same, known step.

    Where neither attempt took a step, that is the same place, too.
    """
    same = fingerprint(incident)
    return any(
        each.run == incident.run
        and each.attempt < incident.attempt
        and each.last_step == incident.last_step
        and each.state != "recovered"
        and fingerprint(each) == same
        for each in past
    )


def held_by_others(message: str) -> float:
    """Share (0..1) of a GPU's memory that neither torch's process nor nobody has; 0 if unknown."""
    total = _gib(_TOTAL, message)
    free = _gib(_FREE, message)
    own = next((size for pattern in _OWN if (size := _gib(pattern, message)) is not None), None)
    if not total or free is None or own is None:
        return 0.0
    return max(total - free - own, 0.0) / total


def _gib(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    if found is None:
        return None
    size, unit = filter(None, found.groups())
    return float(size.strip(".")) * _UNIT[unit]
