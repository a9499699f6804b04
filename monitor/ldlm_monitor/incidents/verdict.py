"""What is said of the first cause, and how sure it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ldlm_monitor.incidents.clues import Clue, Tier
from ldlm_monitor.model.view import Confidence


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first cause. `ranks` are all that share it; `rank` is set where it is one.

    `why` are sentences for people, the best reason first.
    """

    tier: Tier
    kind: str
    message: str
    confidence: Confidence
    why: tuple[str, ...]
    ranks: frozenset[int] = frozenset()
    clue: Clue | None = None
    host: str | None = None

    @property
    def rank(self) -> int | None:
        """The one rank that is named."""
        return next(iter(self.ranks)) if len(self.ranks) == 1 else None


def by_sources(sources: Iterable[str], *, doubtful: bool) -> Confidence:
    """Two that do not know of each other confirm; one is probable, a doubtful one weak."""
    many = len(set(sources)) > 1
    if doubtful:
        return "probable" if many else "weak"
    return "confirmed" if many else "probable"
