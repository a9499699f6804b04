"""What a job's script loses: its time limit against timeouts, the exit code, the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import re2
from tree_sitter import Node

from ldlm_doctor.bash_script import Command, Pipeline, Scope, Script
from ldlm_doctor.bash_syntax import text_of, within
from ldlm_doctor.bash_values import UNKNOWN, Value
from ldlm_doctor.bash_walk import read_script
from ldlm_doctor.model import Edit, Findings
from ldlm_doctor.option_rules import TIMEOUTS
from ldlm_doctor.options import Group, count, launches, slurm_options
from ldlm_doctor.setting import Environment, GroupTimeout, Setting, Surroundings
from ldlm_monitor.text.format import duration

_RESUMES = re2.compile(
    r"(?i)^(?:-{0,2}[a-z0-9_.+]*\b(?:auto[-_])?(?:resume|restart)(?:[-_](?:from|training|path|ckpt|"
    r"run|id|step)[a-z0-9_-]*)?)(?:=(.*))?$"
)
_NO = frozenset({"", "false", "null", "none", "no", "0", "off", "never"})
_DIRECTIVE = re2.compile(r"(?m)^#SBATCH[ \t]+(.*)$")
_SWALLOWS = re2.compile(r"(?:^|/)(?:head|grep|less|sed)$")
_LIMITS = (
    re2.compile(r"(?m)^#SBATCH[ \t]+(?:--time[= \t]+|-t[ \t]*)([0-9:-]+)"),
    re2.compile(r"(?m)^#PBS[ \t]+-l[ \t]+(?:[^\n]*[,:])?walltime=([0-9:]+)"),
    re2.compile(r"(?m)^#BSUB[ \t]+-W[ \t]*([0-9:]+)"),
)
_LSF = 2
_TIMES = ("SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME")


def exit_codes(script: Script) -> Findings:
    """Launches that are piped into tee while pipefail is off, and whose status nobody reads."""
    fixed_before: list[tuple[Scope, Edit]] = []
    for place in _piped(script):
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


def truncations(script: Script) -> Findings:
    """A launch that resumes, whose log has a fixed name and is truncated."""
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


def requeues(script: Script) -> Findings:
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


@dataclass(frozen=True, slots=True)
class Limit:
    """A job's time limit in seconds, and the byte where it stands."""

    seconds: float
    at: int


def limit_of(script: Script) -> Limit | None:
    """What the directives of Slurm, PBS or LSF say; None where they say nothing."""
    text = script.content.decode("latin-1")
    for scheduler, pattern in enumerate(_LIMITS):
        found = pattern.search(text)
        if found:
            seconds = _seconds(str(found.group(1)), lsf=scheduler == _LSF)
            return Limit(seconds, found.start()) if seconds else None
    return None


def _seconds(text: str, *, lsf: bool) -> float:
    """Slurm's `m`, `m:s`, `h:m:s`, `d-h`, `d-h:m`, PBS's `h:m:s`, LSF's `m` and `h:m`."""
    days, dashed, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts) or not (days.isdigit() or not dashed):
        return 0.0
    from_hours = dashed or len(parts) == 3 or (lsf and len(parts) == 2)
    units = [3600, 60, 1] if from_hours else [60, 1]
    clocked = sum(int(part) * unit for part, unit in zip(parts, units, strict=False))
    return float(int(days or 0) * 86_400 + clocked)


def beyond(
    script: Script, environment: Environment, groups: list[Group], around: Surroundings
) -> Findings:
    """Timeouts that end after the job's time limit, where several processes communicate."""
    limit = limit_of(script)
    if limit is not None and environment.launch is not None:
        at = script.setting(limit.at)
        cost = _cost(limit, script)
        yield from _compared(_given(environment, groups), around, limit.seconds, at, cost)


def of_job(environment: Environment, group: Group, around: Surroundings) -> Findings:
    """The same for a process in a job of Slurm, by the times that Slurm gives it."""
    start, end = (next(environment.of(name), None) for name in _TIMES)
    begun, ended = (each.amount or 0.0 if each else 0.0 for each in (start, end))
    if start and end and 0 < ended - begun < ended:
        yield from _compared(_given(environment, [group]), around, ended - begun, end)


def _compared(
    given: Iterator[tuple[float, Setting]],
    around: Surroundings,
    allowed: float,
    at: Setting,
    cost: str = "",
) -> Findings:
    """The timeouts of a launch that its job does not reach; without one, that of the project."""
    places = list(given)
    least = None if places else _least(around)
    for seconds, place in places:
        if seconds >= allowed:
            detail = f"{duration(seconds)}, the job has {duration(allowed)}{cost}"
            yield place.finding("timeout-beyond-walltime", detail)
    if least is not None and least.seconds >= allowed:
        detail = f"{duration(least.seconds)}, the job has {duration(allowed)}{cost}"
        yield at.finding("timeout-beyond-walltime", f"{least.path}:{least.line} gives {detail}")


def _given(environment: Environment, groups: list[Group]) -> Iterator[tuple[float, Setting]]:
    """The timeouts of a launch, in seconds, and where they stand."""
    for group in groups:
        for option in group.of(*TIMEOUTS):
            yield float((option.number or 0) * TIMEOUTS[option.name]), option
    for setting in environment.of("DEEPSPEED_TIMEOUT"):
        yield (setting.amount or 0.0) * 60, setting


def _least(around: Surroundings) -> GroupTimeout | None:
    """The shortest timeout that code or configuration gives: no launch has less."""
    elsewhere = [timeout for timeout in around.group_timeouts if not timeout.of_one_launch]
    return min(elsewhere, key=lambda timeout: timeout.seconds, default=None)


def _cost(limit: Limit, script: Script) -> str:
    """What a hang may cost: at most the job's whole time, on all its GPUs."""
    slurm = slurm_options(script)
    nodes = count(slurm, "nodes") or 1
    each = count(slurm, "gpus_per_node", "gres", "gpus_per_task")
    total = count(slurm, "gpus") or (each and each * nodes)
    hours = limit.seconds / 3600 * (total or 0)
    return f": up to {hours:.0f} GPU-hours" if total and hours >= 1 else ""
