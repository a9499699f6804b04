"""An environment variable that a file, or a running process, gives to a training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ldlm_doctor.model import Edit, Finding

Release = tuple[int, int]
"""Major and minor of a version of PyTorch."""


_YES = ("1", "y", "yes", "t", "true", "on")
_NO = ("0", "n", "no", "f", "false", "off")


@dataclass(frozen=True, slots=True)
class Setting:
    """A name and its value: an environment variable, an option, a key of a configuration.

    `value` is None where it is known only at run time. `value_at` are the bytes that spell it
    (None: no edit).
    `optional`: a default that the caller may override; `conditional`: set under some condition.
    """

    name: str
    value: str | None
    path: str
    line: int
    evidence: str
    value_at: tuple[int, int] | None = None
    optional: bool = False
    conditional: bool = False

    def finding(self, check: str, detail: str = "", *edits: Edit | None) -> Finding:
        """A finding at this place; without edits where one of them is None."""
        if self.optional:
            detail = f"{detail}{', ' if detail else ''}unless the caller sets another"
        given = tuple(edit for edit in edits if edit is not None)
        possible = given if len(given) == len(edits) else ()
        return Finding(check, self.path, self.line, self.evidence, detail, possible)

    @property
    def number(self) -> int | None:
        """The value as a whole number, if it is one."""
        text = (self.value or "").strip().replace("_", "")
        return int(text) if text.lstrip("-").isdigit() and len(text) < 15 else None

    @property
    def amount(self) -> float | None:
        """The value as a number, if it is one."""
        try:
            return float(self.value) if self.value is not None else None
        except ValueError:
            return None

    @property
    def truth(self) -> bool | None:
        """The value as a truth value, if it is one."""
        word = (self.value or "").strip().lower()
        return True if word in _YES else False if word in _NO else None

    def with_value(self, text: str) -> Edit | None:
        """Another value in its place."""
        return self.value_at and Edit(self.path, *self.value_at, text.encode())


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known beside the settings of one place.

    `torch` is the version that the project pins, or the process has (None: not known);
    `group_timeout` is the longest that the project gives a process group, in seconds (None: none
    seen); `readers` are names that its code reads.
    """

    torch: Release | None = None
    group_timeout: float | None = None
    readers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Environment:
    """The settings of one script, file or process, and where a training starts with them.

    `launch` is where it starts processes that talk to each other (None: nothing is seen to start
    here).
    """

    settings: tuple[Setting, ...]
    launch: Setting | None = None
    elsewhere: frozenset[str] = frozenset()
    """Names that files set which it takes over, or which call it."""
    for_debugging: bool = False
    """Its name says that it is there to debug or to test."""
    _by_name: dict[str, list[Setting]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for setting in self.settings:
            self._by_name.setdefault(setting.name, []).append(setting)

    def of(self, *names: str) -> Iterator[Setting]:
        """The settings of these names."""
        for name in names:
            yield from self._by_name.get(name, ())

    def sets(self, *names: str) -> bool:
        """Whether one of these names is set, here or elsewhere."""
        return any(name in self._by_name or name in self.elsewhere for name in names)
