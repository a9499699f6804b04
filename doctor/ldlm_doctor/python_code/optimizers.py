"""How the optimizer is made."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ldlm_doctor.model import Edit, Finding
from ldlm_doctor.python_code.edits import keyword_added
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.values import arguments

_FUSED = frozenset(
    f"torch.optim.{where}{name}" for name in ("Adam", "AdamW") for where in ("", f"{name.lower()}.")
)
_INSTEAD = ("fused", "foreach", "capturable", "differentiable")


def inspect(module: Module, program: Program) -> Iterator[Finding]:
    """Each Adam and AdamW."""
    yield from _misplaced(module)
    if not (program.trains(module) and program.is_on_cuda(module)):
        return
    for call in module.calls_to(_FUSED):
        given = arguments(module, call)
        if any(call in module.above(other) for other in _fused_tuples(module)):
            continue
        if all(given.lacks(name) for name in _INSTEAD) and not _is_fallback(module, call):
            yield module.finding("optimizer-unfused", call, edits=_fused(module, call))


def _fused(module: Module, call: ast.Call) -> tuple[Edit, ...]:
    if module.imports.get("torch") != "torch":
        return ()
    return keyword_added(module, call, "fused=torch.cuda.is_available()")


def _is_fallback(module: Module, call: ast.Call) -> bool:
    """Another one beside it is fused: this is for where that does not work."""
    around = module.function(call) or module.tree
    for other in module.calls_to(_FUSED):
        beside = other is not call and (module.function(other) or module.tree) is around
        if beside and not arguments(module, other).lacks("fused"):
            return True
    return False


def _misplaced(module: Module) -> Iterator[Finding]:
    for call in _fused_tuples(module):
        only = call.keywords[0]
        outer = next((n for n in module.above(call) if isinstance(n, ast.Call)), None)
        edits: tuple[Edit, ...] = ()
        if outer is not None and not any(k.arg == "fused" for k in outer.keywords):
            removed = Edit(module.file.path, module.end(call.args[0]), module.end(only), b"")
            edits = (removed, *keyword_added(module, outer, f"fused={module.text(only.value)}"))
        yield module.finding("optimizer-fused-misplaced", call, edits=edits)


def _fused_tuples(module: Module) -> list[ast.Call]:
    """`tuple(betas, fused=True)`, as a replacement of text by a script leaves it."""
    found = []
    for call in module.methods_called.get("tuple", ()):
        match call:
            case ast.Call(func=ast.Name(), args=[_], keywords=[ast.keyword(arg="fused")]):
                found.append(call)
    return found
