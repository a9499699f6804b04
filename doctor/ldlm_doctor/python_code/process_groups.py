"""Process groups: timeouts, how they end, and NCCL settings that code writes to `os.environ`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ldlm_doctor.model import Edits, Findings
from ldlm_doctor.python_code.module import Module, naming
from ldlm_doctor.python_code.program import INIT_PROCESS_GROUP, Program
from ldlm_doctor.python_code.source_text import replaced
from ldlm_doctor.python_code.values import UNKNOWN, arguments, constant, seconds
from ldlm_monitor.text.format import duration

_GROUPS = INIT_PROCESS_GROUP | {
    "torch.distributed.new_group",
    "torch.distributed.distributed_c10d.new_group",
}
_POSITIONAL = ("backend", "init_method", "timeout")
_DAY, _HOUR = 86400.0, 3600.0
_OLD_NAMES = {
    "NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT", "NCCL_DESYNC_DEBUG", "NCCL_ENABLE_TIMING",
}  # fmt: skip
_LONGEST_HEARTBEAT = 1800
_HEARTBEAT_DEFAULT = "480"
_SWITCHES = {
    "NCCL_ENABLE_MONITORING": (("0", "false"), "python-env-monitoring-off", "1"),
    "NCCL_BLOCKING_WAIT": (("1", "true"), "python-env-blocking-wait", "0"),
    "NCCL_ASYNC_ERROR_HANDLING": (("0",), "python-env-error-handling-off", None),
}
"""By name without TORCH_: wrong values, the check, and the right value (None: no edit)."""


def inspect(module: Module, program: Program) -> Findings:
    """Each process group that is made."""
    is_script = bool(program.loops(module)) or module.runs_itself
    destroyed = program.any_relative(naming("destroy_process_group"), module)
    starts = list(module.calls_to(INIT_PROCESS_GROUP))
    for call in module.calls_to(_GROUPS):
        is_start = any(call is start for start in starts)
        names = _POSITIONAL if is_start else ("ranks", "timeout", "backend")
        given = arguments(module, call, names)
        timeout = given["timeout"]
        length = seconds(module, timeout)
        if not is_start and constant(module, given["backend"]) == "gloo":
            continue  # a group of its own to wait in, as long as it takes
        if length is not None and length > _HOUR:
            check = f"process-group-timeout-{'days' if length >= _DAY else 'long'}"
            yield module.finding(check, timeout or call, duration(length))
        elif is_start and given.lacks("timeout") and program.has_loops(module):
            backend = constant(module, given["backend"])
            if not isinstance(backend, str) or "nccl" in backend:
                yield module.finding("process-group-no-timeout", call)
    if starts and is_script and not destroyed and program.has_loops(module):
        yield module.finding("process-group-not-destroyed", starts[0])


@dataclass(frozen=True, slots=True)
class EnvironmentSetting:
    """A variable that code sets to something known."""

    name: str
    value: str
    node: ast.expr
    """The expression of the value."""
    name_node: ast.expr
    at: ast.expr | ast.stmt


def _settings(module: Module) -> Iterator[EnvironmentSetting]:
    """`os.environ[NAME] = VALUE`, `.setdefault`, `.update`, and `os.putenv`."""
    for node in module.each(ast.Assign):
        match node:
            case ast.Assign(targets=[ast.Subscript(value=owner, slice=key)], value=value):
                if _is_environment(module, owner):
                    yield from _setting(module, key, value, node)
    for call in module.calls:
        match call:
            case ast.Call(func=ast.Attribute(value=owner, attr="setdefault"), args=[key, value]):
                if _is_environment(module, owner):
                    yield from _setting(module, key, value, call)
            case ast.Call(func=ast.Attribute(value=owner, attr="update")):
                if _is_environment(module, owner):
                    yield from _updated(module, call)
            case ast.Call(args=[key, value]) if module.resolve(call.func) == "os.putenv":
                yield from _setting(module, key, value, call)


def _is_environment(module: Module, node: ast.expr) -> bool:
    return module.resolve(node) in ("os.environ", "environ")


def _updated(module: Module, call: ast.Call) -> Iterator[EnvironmentSetting]:
    for keyword in call.keywords:
        if keyword.arg:
            name = ast.copy_location(ast.Constant(keyword.arg), keyword.value)
            yield from _setting(module, name, keyword.value, call)
    for given in call.args:
        if isinstance(given, ast.Dict):
            for key, value in zip(given.keys, given.values, strict=True):
                if key is not None:
                    yield from _setting(module, key, value, value)


def _setting(
    module: Module, key: ast.expr, value: ast.expr, at: ast.expr | ast.stmt
) -> Iterator[EnvironmentSetting]:
    name, known = constant(module, key), constant(module, value)
    if isinstance(name, str) and ("NCCL" in name):
        yield EnvironmentSetting(name, "" if known is UNKNOWN else str(known), value, key, at)


def inspect_environment(module: Module, program: Program) -> Findings:
    """Each setting that is known to do harm, or nothing."""
    starts = list(module.calls_to(INIT_PROCESS_GROUP))
    for setting in _settings(module):
        yield from _judged(module, setting)
        if any(_comes_after(module, setting.at, start) for start in starts):
            yield module.finding("python-env-set-too-late", setting.at)


def _judged(module: Module, setting: EnvironmentSetting) -> Findings:
    name, value = setting.name, setting.value.strip().lower()
    bare = name.removeprefix("TORCH_")
    if bare == "NCCL_HEARTBEAT_TIMEOUT_SEC" and value.isdecimal():
        if int(value) > _LONGEST_HEARTBEAT:
            length, edits = duration(int(value)), _value(module, setting, _HEARTBEAT_DEFAULT)
            yield module.finding("python-env-heartbeat-timeout", setting.at, length, edits)
    elif name == "NCCL_TIMEOUT":
        yield module.finding("python-env-nccl-timeout-unread", setting.at)
    elif bare in _SWITCHES and value in _SWITCHES[bare][0]:
        _, check, right = _SWITCHES[bare]
        yield module.finding(check, setting.at, edits=_value(module, setting, right))
    if name in _OLD_NAMES:
        edits = ()
        if isinstance(setting.name_node, ast.Constant) and _is_written(module, setting):
            quoted = module.text(setting.name_node).replace(name, f"TORCH_{name}")
            edits = (replaced(module, setting.name_node, quoted),)
        yield module.finding("python-env-deprecated-name", setting.at, f"now TORCH_{name}", edits)


def _is_written(module: Module, setting: EnvironmentSetting) -> bool:
    """The name stands in the file as a string, and the new name is not set beside it."""
    written = module.text(setting.name_node)
    return setting.name in written and f"TORCH_{setting.name}" not in module.words


def _value(module: Module, setting: EnvironmentSetting, text: str | None) -> Edits:
    """The value as another string of the same quotes, or `str()` of another number."""
    node = setting.node
    if text is None:
        return ()
    match node:
        case ast.Call(func=ast.Name(id="str"), args=[ast.Constant(value=int()) as only]):
            return (replaced(module, only, text),)
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return ()
    written = module.text(node)
    if node.value not in written:
        return ()
    return (replaced(module, node, written.replace(node.value, text)),)


def _comes_after(module: Module, late: ast.AST, early: ast.AST) -> bool:
    """In the same function, outside of any branch that the other is not in."""
    if module.scope(late) is not module.scope(early):
        return False
    statement = module.statement(early)
    around = {id(node) for node in module.above(late)}
    parent = module.parents[statement]
    return (
        id(parent) in around
        and module.statement(late).lineno > (statement.end_lineno or statement.lineno)
        and not (isinstance(parent, ast.If) and _in_other_branch(parent, statement, around, late))
    )


def _in_other_branch(parent: ast.If, statement: ast.stmt, around: set[int], late: ast.AST) -> bool:
    def has(block: list[ast.stmt], node: ast.AST) -> bool:
        return any(each is node or id(each) in around for each in block)

    return any(each is statement for each in parent.body) != has(parent.body, late)
