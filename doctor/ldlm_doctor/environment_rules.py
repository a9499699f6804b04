"""Judges environment variables, wherever they are set."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ldlm_doctor.model import Findings, data
from ldlm_doctor.setting import Environment, Setting, Surroundings
from ldlm_doctor.words import duration

_DAY = 86_400
_HEARTBEAT_DEFAULT = 480
_HEARTBEAT_WITH_LONG_GROUPS = 1800
_DATA = data("environment")
_ALIASES: dict[str, str] = _DATA["aliases"]
_IB_TIMEOUT_BITS = 31
"""The greatest value of the field in the InfiniBand verbs, which has five bits."""


def is_known(name: str) -> bool:
    """Whether a variable means something to NCCL or PyTorch."""
    return name.startswith(tuple(_DATA["known"]))


def judge(environment: Environment, around: Surroundings) -> Findings:
    """All findings in the settings of one place."""
    for rule in _RULES:
        yield from rule(environment, around)


def heartbeat(environment: Environment, around: Surroundings) -> Findings:
    """Days, or longer than the process group's timeout, or too short for a compilation."""
    for setting in environment.of("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"):
        seconds = setting.amount
        if seconds is None:
            continue
        known = around.group_timeout or 0.0
        long = known >= _HEARTBEAT_WITH_LONG_GROUPS
        edit = setting.with_value(str(_HEARTBEAT_WITH_LONG_GROUPS if long else _HEARTBEAT_DEFAULT))
        if seconds >= _DAY:
            yield setting.finding("heartbeat-timeout-days", duration(seconds), edit)
        elif seconds > (known or 3600.0):
            than = f", the process group's {duration(known)}" if known else ""
            yield setting.finding("heartbeat-timeout-long", f"{duration(seconds)}{than}")
        elif 0 < seconds < 120:
            yield setting.finding("heartbeat-timeout-short", duration(seconds))


def switches(environment: Environment, _: Surroundings) -> Findings:
    """What is on or off and should not be, by the name that wins."""
    for names, wrong, check, detail, right in _DATA["switches"]:
        for setting in _effective(environment, *names):
            if setting.truth is wrong:
                yield setting.finding(check, detail, setting.with_value(right))


def nccl_timeout(environment: Environment, around: Surroundings) -> Findings:
    """Only where the project itself does not read it."""
    if "NCCL_TIMEOUT" not in around.readers:
        for setting in environment.of("NCCL_TIMEOUT"):
            yield setting.finding("nccl-timeout-unread")


def names(environment: Environment, around: Surroundings) -> Findings:
    """Old names with a new PyTorch, and new names with an old one."""
    old_torch = around.torch is not None and around.torch < (2, 2)
    for old, new in _ALIASES.items():
        for setting in () if old_torch else environment.of(old):
            if environment.sets(new):
                winner = next(environment.of(new), None)
                place = f"={winner.value or '...'} of line {winner.line}" if winner else ""
                detail = f"{new}{place} wins"
                yield setting.finding("nccl-name-deprecated", detail)
            else:
                yield setting.finding("nccl-name-deprecated", f"now {new}")
        for setting in environment.of(new) if old_torch else ():
            yield setting.finding("torch-nccl-name-ignored", f"{old} in this version")


def debugging(environment: Environment, _: Surroundings) -> Findings:
    """What is left over from debugging; not in scripts that are for it, or under a condition."""
    if environment.for_debugging:
        return
    for name, values, check in _DATA["left_over"]:
        for setting in environment.of(name):
            if not setting.conditional and (setting.value or "").strip().upper() in values:
                yield setting.finding(check, f"{name}={setting.value}")
    chosen = [s for s in environment.of("NCCL_DEBUG_SUBSYS") if (s.value or "").upper() != "ALL"]
    for setting in environment.of("NCCL_DEBUG"):
        level = (setting.value or "").upper()
        if not setting.conditional and (level == "TRACE" or (level == "INFO" and not chosen)):
            yield setting.finding("nccl-debug-noise", "", setting.with_value("WARN"))


def fabric(environment: Environment, _: Surroundings) -> Findings:
    """InfiniBand."""
    for setting in environment.of("NCCL_IB_TIMEOUT"):
        if (setting.amount or 0) > _IB_TIMEOUT_BITS:
            yield setting.finding("nccl-ib-timeout-range")


def advise(environment: Environment, around: Surroundings) -> Findings:
    """What is unset where a training starts; nothing where none does."""
    launch = environment.launch
    if launch is None:
        return
    for check, name in _DATA["advised"].items():
        if not environment.sets(name):
            yield launch.finding(check)
    if "nnodes" in launch.evidence and not environment.sets("NCCL_SOCKET_IFNAME"):
        yield launch.finding("advice-socket-interface")


def _effective(environment: Environment, *old_names: str) -> Iterator[Setting]:
    """The settings of a thing with two names: those of the new one where it is set."""
    for old in old_names:
        new = _ALIASES.get(old, old)
        yield from environment.of(new if environment.sets(new) else old)


_RULES: tuple[Callable[[Environment, Surroundings], Findings], ...] = (
    heartbeat, switches, nccl_timeout, names, debugging, fabric,
)  # fmt: skip
