"""The words of the main command in their plain form: most starts need no library to read them.

To import that library (cyclopts) costs each start CPU. Whatever is not plain, also all that is
wrong, is left to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ldlm_monitor.service.cli.command_table import NAMES
from ldlm_monitor.service.cli.flags import FollowFlags

_NEGATIVE = frozenset({"--no-companions", "--no-join"})


def plain(words: Sequence[str]) -> tuple[tuple[str, ...], FollowFlags] | None:
    """The files and flags of the main command; None unless all of its words are plain.

    Plain are files, flags as `--once`, and flags with their value in the next word.
    """
    kinds = _kinds()
    files: list[str] = []
    given: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        if (word and not word.startswith("-")) or word == "-":
            files.append(word)
        elif (name := word.removeprefix("--").replace("-", "_")) in kinds and name not in given:
            value = True if kinds[name] is bool else _value(kinds[name], next(rest, ""))
            if value is None or word != f"--{name.replace('_', '-')}":
                return None
            given[name] = value
        elif word in _NEGATIVE and word.removeprefix("--no-") not in given:
            given[word.removeprefix("--no-")] = False
        else:
            return None
    return None if NAMES & {*files} else (tuple(files), FollowFlags(**given))


def _kinds() -> dict[str, Any]:
    """The type of each flag's value, by the name of its setting."""
    return {name: get_args(hint)[0] for name, hint in get_type_hints(FollowFlags).items()}


def _value(kind: Any, word: str) -> object:
    """A word as a value of that type; None if it is not plain."""
    if not word or word.startswith("-"):
        return None
    if get_origin(kind) is Literal:
        return word if word in get_args(kind) else None
    if kind is str:
        return word
    return Path(word) if kind is Path else (Path(word),)
