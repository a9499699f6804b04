"""Which environment variables a shell script gives to what it starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import re2

from ldlm_doctor.bash_script import Assignment, Command, Scope, Script
from ldlm_doctor.bash_syntax import text_of
from ldlm_doctor.model import data
from ldlm_doctor.options import launches, starts, wraps
from ldlm_doctor.setting import Setting
from ldlm_doctor.surroundings import NO_NEIGHBOURS, Neighbours

_PAIR = re2.compile(r"^([A-Za-z_][A-Za-z0-9_]*)=(.*)$")
_SEVERAL = re2.compile(r"^--env=[A-Za-z_][A-Za-z0-9_]*=.*,[A-Za-z_][A-Za-z0-9_]*=")
_DIRECTIVE = re2.compile(r"(?m)^#SBATCH[ \t]+--export[= ]([^\n]*)$")
_PASSING = frozenset(data("names")["passing"])
_LIST_FLAGS = frozenset({"--export", "-v"})
_PASSING_FLAGS = frozenset({"-x", "-e", "--env"}) | _LIST_FLAGS


@dataclass(frozen=True, slots=True)
class _Event:
    """Something at a place of the script that sets a name, unsets it, or starts a training."""

    at: int
    scope: Scope
    name: str
    setting: Setting | None = None
    without: frozenset[str] = frozenset()
    """Names that what is started does not get (`env -u`)."""


def settings_of(script: Script, around: Neighbours = NO_NEIGHBOURS) -> tuple[Setting, ...]:
    """The settings that are in effect where something is started, the first to last.

    One that a later assignment, a sourced file or `unset` replaces before anything was started is
    left out.
    """
    taken = (
        _Event(source.at, source.scope, name)
        for source, names in around.sourced(script)
        for name in names
    )
    events = sorted((*_events(script), *taken), key=lambda event: event.at)
    kept = []
    for index, event in enumerate(events):
        if event.setting is not None and not _replaced(event, events[index + 1 :]):
            kept.append(event.setting)
    passed = [setting for command in script.commands for setting in _passed(command, script)]
    return (*kept, *passed, *_directives(script))


def _events(script: Script) -> Iterator[_Event]:
    launching = {
        name
        for name, scope in script.functions.items()
        if any(launches(c.texts) and c.scope[: len(scope)] == scope for c in script.commands)
    }
    exported = script.exported | {a.name for a in script.assignments if a.exported}
    for assignment in script.assignments:
        at, name = assignment.node.start_byte, assignment.name
        if assignment.command is not None:
            if not _is_for_itself(assignment):
                yield _Event(at, (*assignment.scope, at), name, _setting(assignment, script))
        elif name in exported:
            yield _Event(at, assignment.scope, name, _setting(assignment, script))
    for removal in script.removals:
        yield _Event(removal.at, removal.scope, removal.name)
    for command in script.commands:
        if launches(command.texts) or (command.texts and command.texts[0] in launching):
            kept_out = frozenset(_kept_out(command))
            yield _Event(command.node.start_byte, command.scope, "", without=kept_out)


def _kept_out(command: Command) -> Iterator[str]:
    """`env -u NAME --unset=NAME`."""
    texts = command.texts
    if "env" in texts:
        for flag, name in pairwise(texts):
            if flag in ("-u", "--unset"):
                yield name
            elif flag.startswith("--unset="):
                yield flag.partition("=")[2]


def _is_for_itself(assignment: Assignment) -> bool:
    """`IFS=, read ...`: the command is the shell's own."""
    first = assignment.command and assignment.command.child_by_field_name("name")
    return first is not None and text_of(first) in ("read", ":", "eval", "set")


def _replaced(event: _Event, later: list[_Event]) -> bool:
    spared = False
    for other in later:
        if not other.name and event.name in other.without:
            spared = True
        elif not other.name:
            return False
        elif other.name == event.name and other.scope == event.scope[: len(other.scope)]:
            return True
    return spared


def _setting(assignment: Assignment, script: Script) -> Setting:
    node = assignment.node
    value = assignment.value
    return replace(
        script.setting(node.start_byte, assignment.name, value.text),
        value_at=(value.start, value.end),
        optional=value.default,
        conditional=script.conditional(assignment.scope),
    )


def _passed(command: Command, script: Script) -> Iterator[Setting]:
    """`env NAME=value`, `mpirun -x NAME=value`, `docker run -e NAME=value`, `srun --export=`."""
    if not command.words or not wraps(command.texts[0]):
        return
    passer = before = ""
    for word in command.words:
        text = word.text
        name = text.rsplit("/", 1)[-1]
        if text.startswith(("--export=", "--env=")):
            start = text.index("=") + 1
            many = text.startswith("--export=") or _SEVERAL.match(text)
            yield from (_listed if many else _pair)(text[start:], word.start + start, script)
        elif passer == "env" or (passer and before in _PASSING_FLAGS):
            many = before in _LIST_FLAGS
            yield from (_listed if many else _pair)(text, word.start, script)
        if starts(text):
            return
        passer = name if name in _PASSING else passer
        before = text


def _pair(text: str, at: int, script: Script) -> Iterator[Setting]:
    found = _PAIR.match(text)
    if not found:
        return
    name, value = found.group(1), found.group(2)
    setting = script.setting(at, name, value)
    middle, end = at + len(name), at + len(name) + 1 + len(value.encode())
    if script.content[middle + 1 : end] == value.encode():
        setting = replace(setting, value_at=(middle + 1, end))
    yield setting


def _listed(text: str, start: int, script: Script) -> Iterator[Setting]:
    """`ALL,A=1,B=2`."""
    for part in text.split(","):
        yield from _pair(part, start, script)
        start += len(part.encode()) + 1


def _directives(script: Script) -> Iterator[Setting]:
    text = script.content.decode("latin-1")
    for found in _DIRECTIVE.finditer(text):
        yield from _listed(found.group(1).strip(), found.start(1), script)
