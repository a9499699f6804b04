"""Process groups: timeouts, how they end, and NCCL settings that code writes to `os.environ`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ldlm_doctor import environment_rules
from ldlm_doctor.model import Findings, Project
from ldlm_doctor.python_code.expressions import last_name, receiver
from ldlm_doctor.python_code.facts import INIT_PROCESS_GROUP
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.values import UNKNOWN, arguments, constant, seconds
from ldlm_doctor.setting import Environment, Setting, Surroundings
from ldlm_doctor.surroundings import surroundings
from ldlm_doctor.words import duration

_GROUPS = INIT_PROCESS_GROUP | {
    "torch.distributed.new_group",
    "torch.distributed.distributed_c10d.new_group",
}
_POSITIONAL = ("backend", "init_method", "timeout")
_DAY, _HOUR = 86400.0, 3600.0


def inspect(module: Module, _: Program) -> Findings:
    """Each process group that is made."""
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


def inspect_environment(module: Module, program: Program) -> Findings:
    """What code writes to `os.environ`, judged as in a script."""
    given = Environment(tuple(_settings(module)))
    yield from environment_rules.judge(given, program.once(_surroundings))


def _surroundings(program: Program) -> Surroundings:
    return surroundings(Project(program.files))


def _settings(module: Module) -> Iterator[Setting]:
    """`os.environ[NAME] = VALUE`, `.setdefault`, `.update`, `os.putenv`."""
    pairs: list[tuple[ast.expr | None, ast.expr]] = [
        (target.slice, value)
        for target, value in module.stores
        if isinstance(target, ast.Subscript) and _is_environment(module, target.value)
    ]
    for call in module.called("setdefault", "update", "putenv"):
        if module.resolve(call.func) != "os.putenv" and not _is_environment(module, receiver(call)):
            continue
        if len(call.args) == 2:
            pairs.append((call.args[0], call.args[1]))
        for given in call.keywords:
            pairs.append((ast.Constant(given.arg), given.value))
        for held in call.args:
            pairs += zip(held.keys, held.values, strict=True) if isinstance(held, ast.Dict) else ()
    for key, value in pairs:
        name, known = constant(module, key), constant(module, value)
        if isinstance(name, str) and "NCCL" in name:
            yield _setting(module, name, key, value, known)


def _is_environment(module: Module, node: ast.expr) -> bool:
    return module.resolve(node) in ("os.environ", "environ")


def _setting(
    module: Module, name: str, key: ast.expr | None, value: ast.expr, known: object
) -> Setting:
    evidence = module.finding("", value).evidence
    return Setting(
        name, None if known is UNKNOWN else str(known), module.file.path, value.lineno, evidence,
        _spelled(module, value),
        optional=last_name(getattr(module.parents.get(value), "func", None)) == "setdefault",
        conditional=module.function(value) is not None or module.around(value, ast.If) is not None,
    )  # fmt: skip


def _spelled(module: Module, node: ast.expr | None) -> tuple[int, int] | None:
    """The bytes of a string without its quotes, or of the number in `str(1)`."""
    match node:
        case ast.Constant(value=str() as text) if hasattr(node, "lineno"):
            if module.text(node)[1:-1] == text:
                return module.start(node) + 1, module.end(node) - 1
        case ast.Call(func=ast.Name(id="str"), args=[ast.Constant(value=int()) as only]):
            return module.start(only), module.end(only)
    return None
