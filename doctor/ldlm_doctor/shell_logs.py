"""Where a launch script leaves the log and the exit code of a training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import re2
from tree_sitter import Node

from ldlm_doctor.bash_script import Command, Pipeline, Scope, Script
from ldlm_doctor.bash_syntax import text_of, within
from ldlm_doctor.bash_values import UNKNOWN, Value
from ldlm_doctor.bash_walk import read_script
from ldlm_doctor.model import Edit, Finding
from ldlm_doctor.options import launches

_RESUMES = re2.compile(
    r"(?i)^(?:-{0,2}[a-z0-9_.+]*\b(?:auto[-_])?(?:resume|restart)(?:[-_](?:from|training|path|ckpt|"
    r"run|id|step)[a-z0-9_-]*)?)(?:=(.*))?$"
)
_NO = frozenset({"", "false", "null", "none", "no", "0", "off", "never"})
_DIRECTIVE = re2.compile(r"(?m)^#SBATCH[ \t]+(.*)$")
_SWALLOWS = re2.compile(r"(?:^|/)(?:head|grep|less|sed)$")


def exit_codes(script: Script) -> Iterator[Finding]:
    """Launches that are piped into tee while pipefail is off, and whose status nobody reads."""
    mended: list[tuple[Scope, Edit]] = []
    for place in _piped(script):
        options = place.options
        if script.in_function(place.scope):
            options |= script.options_at_end
        if "pipefail" in options or (b"PIPESTATUS" in script.content and _status_read(place.node)):
            continue
        edit = next((e for scope, e in mended if scope == place.scope[: len(scope)]), None)
        if edit is None:
            edit = _with_pipefail(script, place)
        if edit is not None:
            mended.append((place.scope, edit))
        inner = script.commands_within(place.node)
        at = next((c.start for c in inner if launches(c.texts)), place.node.start_byte)
        yield script.finding(at, "exit-code-hidden", "", edit)


def _piped(script: Script) -> Iterator[Pipeline | Command]:
    """Pipelines from a launch into tee, also as the text that `eval` is given."""
    for pipeline in script.pipelines:
        if _hides(script, pipeline):
            yield pipeline
    for command in script.commands:
        if command.texts[:1] == ("eval",):
            text = " ".join(command.texts[1:]).replace(UNKNOWN, "x")
            inner = read_script(text.encode())
            if any(_hides(inner, pipeline) for pipeline in inner.pipelines):
                yield command


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


def _with_pipefail(script: Script, place: Pipeline | Command) -> Edit | None:
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


def truncations(script: Script) -> Iterator[Finding]:
    """A launch that resumes, with a log of a fixed name that is opened anew."""
    for command in script.commands:
        if not launches(command.texts) or not _may_resume(script, command):
            continue
        for redirect in command.redirects:
            if redirect.operator in (">", "&>", ">|") and _fixed(redirect.target):
                start, end = redirect.operator_at
                sign = b"&>>" if redirect.operator == "&>" else b">>"
                edit = Edit(script.path, start, end, sign)
                name = redirect.target.text
                yield script.finding(start, "launch-truncates-log", name, edit)
        for tee in _tees_of(script, command):
            if not any(text in ("-a", "--append", "-ai") for text in tee.texts):
                at = tee.words[0].end
                edit = Edit(script.path, at, at, b" -a")
                name = tee.texts[-1]
                yield script.finding(tee.node.start_byte, "launch-truncates-log", name, edit)


def _may_resume(script: Script, command: Command) -> bool:
    """Whether its words, or what a variable of theirs may be given, ask to go on."""
    if resumes(command.texts):
        return True
    names = {text_of(name) for name in within(command.node, "variable_name")}
    return any(
        resumes(text_of(value).strip("()\"'").split())
        for assignment in (script.assignments if names else ())
        if assignment.name in names
        and (value := assignment.node.child_by_field_name("value")) is not None
    )


def resumes(texts: Sequence[str]) -> bool:
    """Whether the words of a command ask to go on from a checkpoint."""
    for at, text in enumerate(texts):
        found = _RESUMES.match(text)
        if not found or (not text.startswith("-") and "=" not in text):
            continue
        following = texts[at + 1] if at + 1 < len(texts) else "true"
        given = found.group(1)
        value = given if given is not None else following
        if str(value).strip("\"'").lower() not in _NO:
            return True
    return False


def _fixed(target: Value) -> bool:
    """A name that is the same in each attempt, and no device."""
    return target.known and not target.text.startswith("/dev/") and "%" not in target.text


def _tees_of(script: Script, command: Command) -> Iterator[Command]:
    for pipeline in script.pipelines:
        stages = [list(script.commands_within(stage)) for stage in pipeline.stages]
        if not any(command in stage for stage in stages[:-1]):
            continue
        for tee in (stage[0] for stage in stages if stage and stage[0].texts[:1] == ("tee",)):
            files = [word for word in tee.words[1:] if not word.text.startswith("-")]
            if files and all(_fixed(word) for word in files):
                yield tee


def requeues(script: Script) -> Iterator[Finding]:
    """`#SBATCH --requeue` of a training without `--open-mode=append`."""
    text = script.content.decode("latin-1")
    directives = [(found.start(), str(found.group(1))) for found in _DIRECTIVE.finditer(text)]
    trains = any(launches(command.texts) for command in script.commands)
    if not trains or any("--open-mode" in words for _, words in directives):
        return
    for start, words in directives:
        if words.split()[:1] == ["--requeue"]:
            end = script.content.find(b"\n", start) + 1
            edit = Edit(script.path, end, end, b"#SBATCH --open-mode=append\n") if end else None
            yield script.finding(start, "requeue-truncates-log", "", edit)
