"""Works out in memory what a fix would make of the files, and keeps only what can be verified."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import yaml

from ldlm_doctor.bash_syntax import parse
from ldlm_doctor.model import Edit, Finding, Kind, Project, SourceFile, with_edits
from ldlm_doctor.python_code.source_text import parsed
from ldlm_doctor.yaml_nodes import compose

_ROUNDS = 5
_BASH_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Repair:
    """A file as it is, and as it would be."""

    file: SourceFile
    after: bytes


@dataclass(frozen=True, slots=True)
class Plan:
    """What a fix would do: the files, the findings that it fixes, and those that it leaves.

    `left` are findings whose edits could not be verified.
    """

    repairs: tuple[Repair, ...]
    fixed: tuple[Finding, ...]
    left: tuple[Finding, ...]


def plan(project: Project, audit: Callable[[Project], Sequence[Finding]]) -> Plan:
    """Applies the findings' edits, and those of what is found then, until none is left.

    So a second fix finds nothing to do. The worst come first where two change the same bytes.
    """
    now = project
    fixed: list[Finding] = []
    left: dict[tuple[str, str, str], Finding] = {}
    for _ in range(_ROUNDS):
        proposed = [f for f in audit(now) if f.edits and _key(f) not in left]
        kept, refused = _verified(now, proposed)
        left.update((_key(finding), finding) for finding in refused)
        if not kept:
            break
        fixed.extend(kept)
        now = _edited(now, kept)
    pairs = zip(project.files, now.files, strict=True)
    repairs = tuple(Repair(was, new.content) for was, new in pairs if was.content != new.content)
    return Plan(repairs, tuple(fixed), tuple(left.values()))


def _key(finding: Finding) -> tuple[str, str, str]:
    return finding.check.id, finding.path, finding.evidence


def _verified(project: Project, proposed: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Those that can be applied together, and those that would break a file.

    A finding that changes bytes of another is neither: its turn comes in the next round.
    """
    compatible: list[Finding] = []
    taken: list[Edit] = []
    for finding in proposed:
        fresh = [edit for edit in finding.edits if edit not in taken]
        if not any(_conflict(edit, other) for edit in fresh for other in taken):
            compatible.append(finding)
            taken.extend(fresh)
    if _holds(project, compatible):
        return compatible, []
    kept: list[Finding] = []
    refused: list[Finding] = []
    for finding in compatible:
        (kept if _holds(project, [*kept, finding]) else refused).append(finding)
    return kept, refused


def _conflict(one: Edit, other: Edit) -> bool:
    if one.path != other.path:
        return False
    if one.start == other.start:
        return True
    return one.start < other.end and other.start < one.end


def _holds(project: Project, findings: Sequence[Finding]) -> bool:
    edited = {file.path: file for file in _edited(project, findings).files}
    known = all(edit.path in edited for finding in findings for edit in finding.edits)
    return known and all(
        verified(file, edited[file.path].content)
        for file in project.files
        if file.content != edited[file.path].content
    )


def _edited(project: Project, findings: Iterable[Finding]) -> Project:
    by_path: dict[str, set[Edit]] = {}
    for finding in findings:
        for edit in finding.edits:
            by_path.setdefault(edit.path, set()).add(edit)
    return Project(
        tuple(
            replace(file, content=with_edits(file.content, by_path.get(file.path, ())))
            for file in project.files
        )
    )


def verified(file: SourceFile, after: bytes) -> bool:
    """Whether the new bytes still are what the file is, and differ only where they should.

    A file that was broken before is left alone.
    """
    match file.kind:
        case Kind.SHELL:
            return _is_bash(file.content) and _is_bash(after)
        case Kind.PYTHON:
            return _is_python(after)
        case Kind.JSON:
            return _is_json(after) and _same_but_values(file.content, after)
        case Kind.YAML:
            return _same_but_values(file.content, after)
        case _:
            return True


def _is_bash(content: bytes) -> bool:
    """By our own parser, and by bash itself where it is there."""
    if parse(content).has_error:
        return False
    bash = shutil.which("bash")
    if bash is None or b"zsh" in content.split(b"\n", 1)[0]:
        return True
    try:
        done = subprocess.run(
            [bash, "-n"], input=content, capture_output=True, timeout=_BASH_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _is_python(content: bytes) -> bool:
    with suppress(SyntaxError, ValueError, RecursionError):
        compile(parsed(content), "<fixed>", "exec", dont_inherit=True)
        return True
    return False


def _is_json(content: bytes) -> bool:
    with suppress(ValueError):
        json.loads(content)
        return True
    return False


def _same_but_values(before: bytes, after: bytes) -> bool:
    """Whether both have the same keys in the same places, and as many values."""
    with suppress(ValueError):
        return _shape(before) == _shape(after)
    return False


def _shape(content: bytes) -> list[object]:
    """Collections and keys, without the values."""
    shape: list[object] = []
    pending = list(compose(content))
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if isinstance(node, yaml.ScalarNode) or id(node) in seen:
            shape.append("")
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            shape.append([str(name.value) for name, _ in node.value])
            pending.extend(value for _, value in node.value)
        else:
            shape.append(len(node.value))
            pending.extend(node.value)
    return shape
