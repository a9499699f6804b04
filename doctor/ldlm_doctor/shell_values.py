"""Values that a launch script works out wrongly, and restores that delete."""

from __future__ import annotations

import re2

from ldlm_doctor.bash_script import Command, Script
from ldlm_doctor.bash_syntax import text_of, within
from ldlm_doctor.bash_values import UNKNOWN
from ldlm_doctor.model import Findings

_STEP = re2.compile(r"(?i)^(?:state|global|current|train|training)_?step$")
_ACCUMULATION = re2.compile(r"(?i)accum")
_BACKUP = re2.compile(r"(?i)backup|bak|snapshot|_old|orig")
_ROUNDED_UP = re2.compile(r"[-+]\s*1\b|%")


def accumulation(script: Script) -> Findings:
    """A plain division, in a script that never looks at a remainder."""
    if next(within(script.root, "%"), None) is not None:
        return
    for assignment in script.assignments:
        value = assignment.node.child_by_field_name("value")
        if value is None or not _ACCUMULATION.search(assignment.name):
            continue
        for sum_ in within(value, "arithmetic_expansion"):
            divides = next(within(sum_, "/"), None) is not None
            if divides and not _ROUNDED_UP.search(text_of(sum_)):
                yield script.finding(assignment.node.start_byte, "accumulation-rounded")


def steps(script: Script) -> Findings:
    """`[ "${state_step:-0}" -lt 10000 ]` where nothing sets state_step."""
    own = {assignment.name for assignment in script.assignments}
    for test in within(script.root, "test_command"):
        for name in within(test, "variable_name"):
            if _STEP.match(text_of(name)) and text_of(name) not in own:
                yield script.finding(name.start_byte, "step-unknown-to-shell", text_of(name))


def restores(script: Script) -> Findings:
    """`rm -rf X`, then `cp -r $BACKUP X`, where the script does not set BACKUP."""
    own = {assignment.name for assignment in script.assignments}
    deleted: dict[str, Command] = {}
    for command in script.commands:
        texts = command.texts
        if texts[:1] == ("rm",) and any(t.startswith("-") and "r" in t.lower() for t in texts[1:]):
            deleted.update({text: command for text in texts[1:] if not text.startswith("-")})
        elif texts[:1] in (("cp",), ("mv",)) and "nounset" not in command.options:
            target = texts[-1] if texts[-1] != UNKNOWN else ""
            unset = [
                text_of(name)
                for node in command.node.named_children[1:-1]
                for name in within(node, "variable_name")
                if _BACKUP.search(text_of(name))
                and text_of(name) not in own
                and ":?" not in text_of(node)
            ]
            if target in deleted and unset:
                yield script.finding(
                    deleted[target].node.start_byte, "restore-from-unset", unset[0]
                )
