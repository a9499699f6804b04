"""Audits shell scripts: what they set, what they start, and where its log and exit code go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath

import re2

from ldlm_doctor import environment_rules, jobs, option_rules, options, shell_values
from ldlm_doctor.bash_script import Script
from ldlm_doctor.bash_walk import read_script
from ldlm_doctor.model import Findings, Kind, Project, pattern
from ldlm_doctor.options import distributes, launches
from ldlm_doctor.setting import Environment, Surroundings
from ldlm_doctor.shell_settings import settings_of
from ldlm_doctor.surroundings import NO_NEIGHBOURS, Neighbours, neighbours, surroundings

_DEBUGGING = re2.compile(pattern("debugging"))


def audit(project: Project) -> Findings:
    """All findings in the project's shell scripts."""
    around = surroundings(project)
    others = neighbours(project)
    for file in project.at_work(Kind.SHELL):
        yield from audit_script(file.content, file.path, around, others)


def advise(project: Project) -> Findings:
    """What the project's launch scripts leave unset that would help after a failure."""
    around = surroundings(project)
    others = neighbours(project)
    for file in project.of(Kind.SHELL):
        environment = environment_of(read_script(file.content, file.path), others)
        yield from environment_rules.advise(environment, around)


def audit_script(
    content: bytes, path: str, around: Surroundings, others: Neighbours = NO_NEIGHBOURS
) -> Findings:
    """All findings in one script; without edits where it was not wholly understood."""
    script = read_script(content, path)
    for finding in _findings(script, around, others):
        inexact = any(
            start < edit.end and edit.start < end
            for edit in finding.edits
            for start, end in script.inexact
        )
        yield finding if script.sound and not inexact else replace(finding, edits=())


def _findings(script: Script, around: Surroundings, others: Neighbours) -> Findings:
    environment = environment_of(script, others)
    yield from environment_rules.judge(environment, around)
    for rule in _RULES:
        yield from rule(script)
    launched = [command for command in script.commands if launches(command.texts)]
    given = {word.start for command in launched for word in command.words}
    alone = [array for array in script.arrays if not any(w.start in given for w in array.words)]
    for command in (*launched, *alone):
        yield from option_rules.judge(options.of_command(command, script))


def environment_of(script: Script, others: Neighbours) -> Environment:
    """What the script sets, and where it starts processes that talk to each other."""
    launch = next((c for c in script.commands if distributes(c.texts)), None)
    started = script.setting(launch.start) if launch is not None else None
    debugging = bool(_DEBUGGING.search(PurePath(script.path).stem))
    taken = (name for _, names in others.sourced(script) for name in names)
    elsewhere = frozenset(taken) if started is not None else frozenset()
    return Environment(settings_of(script, others), started, elsewhere, debugging)


_RULES = (
    jobs.exit_codes, shell_values.accumulation, shell_values.restores, shell_values.steps,
)  # fmt: skip
