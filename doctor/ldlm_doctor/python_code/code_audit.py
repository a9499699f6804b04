"""All checks of Python code over all Python files of a project."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from ldlm_doctor.model import Finding, Findings, Kind, Project, SourceFile
from ldlm_doctor.python_code import (
    accumulation,
    checkpoints,
    collectives,
    ddp,
    ends,
    evaluation,
    half_weights,
    leaving,
    loaders,
    models,
    numerics,
    optimizers,
    process_groups,
    random_state,
    resuming,
    rotation,
    sampling,
    seeds,
    unread,
    updates,
)
from ldlm_doctor.python_code.module import Module, UnreadableError, read
from ldlm_doctor.python_code.program import Program

_INSPECTIONS = (
    loaders.inspect_workers, loaders.inspect_speed, sampling.inspect, seeds.inspect,
    ends.inspect, evaluation.inspect, ddp.inspect, process_groups.inspect,
    process_groups.inspect_environment, collectives.inspect, leaving.inspect,
    updates.inspect, numerics.inspect, half_weights.inspect, accumulation.inspect,
    optimizers.inspect, models.inspect, checkpoints.inspect,
    resuming.inspect, random_state.inspect, rotation.inspect,
)  # fmt: skip


def audit(project: Project) -> Findings:
    """What the checks find, in the order of files and lines. Tests are left out."""
    with _no_collection_of_cycles():
        found = _findings(project)
    yield from found


@contextmanager
def _no_collection_of_cycles() -> Iterator[None]:
    """Syntax trees are millions of objects without cycles, and to search them takes longer
    than to read them: 30 s instead of 6 s for 2,860 files."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _findings(project: Project) -> list[Finding]:
    modules: list[Module] = []
    unreadable: list[SourceFile] = []
    found: list[Finding] = []
    at_work = set(project.at_work(Kind.PYTHON))
    for file in project.of(Kind.PYTHON):
        try:
            module = read(file)
        except UnreadableError as error:
            unreadable.append(file)
            found.append(_unreadable(file, error))
            continue
        if module.file in at_work:
            modules.append(module)
    program = Program(modules, project.files, tuple(unreadable))
    for module in modules:
        try:
            found.extend([each for inspect in _INSPECTIONS for each in inspect(module, program)])
        except RecursionError:
            found.append(_unreadable(module.file, UnreadableError("nested too deeply", 1)))
    found.extend(unread.inspect(program))
    order = {file.path: at for at, file in enumerate(project.files)}
    once: dict[tuple[str, str, int], Finding] = {}
    for finding in sorted(found, key=lambda f: (order[f.path], f.line, f.check.id)):
        # one place may be part of several loops
        once.setdefault((finding.check.id, finding.path, finding.line), finding)
    return list(once.values())


def _unreadable(file: SourceFile, error: UnreadableError) -> Finding:
    lines = file.content.splitlines()
    text = lines[error.line - 1] if 0 < error.line <= len(lines) else b""
    evidence = text.decode("utf-8", "replace").strip()[:400]
    return Finding("python-not-parsed", file.path, max(1, error.line), evidence, error.reason)
