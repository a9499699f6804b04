"""What a job's script loses: the exit code of the training."""

from __future__ import annotations

import re2
from tree_sitter import Node

from ldlm_doctor.bash_script import Pipeline, Scope, Script
from ldlm_doctor.bash_syntax import text_of, within
from ldlm_doctor.model import Edit, Findings
from ldlm_doctor.options import launches

_SWALLOWS = re2.compile(r"(?:^|/)(?:head|grep|less|sed)$")


def exit_codes(script: Script) -> Findings:
    """Launches that are piped into tee while pipefail is off, and whose status nobody reads."""
    fixed_before: list[tuple[Scope, Edit]] = []
    for place in script.pipelines:
        if not _hides(script, place):
            continue
        options = place.options
        if script.in_function(place.scope):
            options |= script.options_at_end
        if "pipefail" in options or (b"PIPESTATUS" in script.content and _status_read(place.node)):
            continue
        edit = next((e for scope, e in fixed_before if scope == place.scope[: len(scope)]), None)
        if edit is None:
            edit = _with_pipefail(script, place)
        if edit is not None:
            fixed_before.append((place.scope, edit))
        inner = script.commands_within(place.node)
        at = next((c.start for c in inner if launches(c.texts)), place.node.start_byte)
        yield script.finding(at, "exit-code-hidden", "", edit)


def _hides(script: Script, pipeline: Pipeline) -> bool:
    trains = False
    for stage in pipeline.stages:
        commands = list(script.commands_within(stage))
        if trains and commands and commands[0].texts[:1] == ("tee",):
            return True
        trains = trains or any(launches(command.texts) for command in commands)
    return False


def _status_read(node: Node) -> bool:
    """Whether ${PIPESTATUS[0]} is read after it, by the same shell."""
    root = node
    while root.parent is not None:
        root = root.parent
    return any(
        name.start_byte > node.end_byte and text_of(name) == "PIPESTATUS"
        for name in within(root, "variable_name")
    )


def _with_pipefail(script: Script, place: Pipeline) -> Edit | None:
    """`set -o pipefail` before it, unless another pipeline would then end the script."""
    node = place.node
    first = script.content.split(b"\n", 1)[0]
    if first.startswith(b"#!") and b"sh" in first and b"bash" not in first and b"zsh" not in first:
        return None
    later = [
        command
        for other in script.pipelines
        if other.node.start_byte > node.end_byte
        for command in script.commands_within(other.node)
    ]
    ends = any(_SWALLOWS.search(command.texts[0]) for command in later if command.texts)
    if "errexit" in place.options and ends:
        return None
    start = script.content.rfind(b"\n", 0, node.start_byte) + 1
    before = script.content[start : node.start_byte]
    return (
        Edit(script.path, start, start, before + b"set -o pipefail\n")
        if not before.strip()
        else None
    )
