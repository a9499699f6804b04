"""Activation checkpointing: where it is missing, and where it is applied so that it fails."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ldlm_doctor.model import Findings, pattern
from ldlm_doctor.python_code.declared import likely
from ldlm_doctor.python_code.expressions import last_name, names_in, variables_in
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.tree import calls_in, inside

CHECKPOINT = frozenset(
    {"torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint", "checkpoint.checkpoint"}
)
_KEYWORD_ONLY = frozenset({"mmdit.mmdit_generalized_pytorch.MMDiT", "mmdit.MMDiT"})
"""Modules of packages whose `forward` takes keywords only."""
_CHECKPOINTING = re.compile(pattern("checkpointing"), re.I)
_ATTENTION = re.compile(r"attention|attn|transformer|(^|_)mha$|multihead|DiT|MMDiT", re.I)
_TORCH_STACKS = ("torch.nn.TransformerEncoder", "torch.nn.TransformerDecoder")
_DEPTHS = {"depth", "n_layers", "num_layers", "n_layer", "n_blocks", "num_blocks"}
_SHALLOW = 5
_OF_TORCH = "torch.utils.checkpoint"


def inspect(module: Module, program: Program) -> Findings:
    """Models of what is trained."""
    yield from _checkpoints(module, program)
    if not program.trains(module) or program.any_relative(_checkpoints_activations, module):
        return
    for cls in module.each(ast.ClassDef):
        place = _deep_backbone(module, cls)
        if place is None and _attends(module, program, cls):
            place = _stack(module, cls)
        if place is not None:
            yield module.finding("model-no-activation-checkpointing", place)


def _checkpoints_activations(module: Module) -> bool:
    names = {local for local, name in module.imports.items() if name.startswith(_OF_TORCH)}
    if any(getattr(node, "id", "") in names for node in module.each(ast.Name)):
        return True
    if _OF_TORCH in map(module.resolve, module.each(ast.Attribute)):
        return True
    return any(_CHECKPOINTING.search(word) for word in module.words)


def _stack(module: Module, cls: ast.ClassDef) -> ast.stmt | None:
    """The loop of `forward` in which a list of blocks is applied one after the other."""
    lists = list(calls_in(ast.walk(cls), ("ModuleList",)))
    if not lists or all(_is_shallow(module, each) for each in lists):
        return None
    for method in cls.body:
        if isinstance(method, ast.FunctionDef) and method.name.startswith("forward"):
            for node in inside(method.body):
                if isinstance(node, ast.For) and _applies(node):
                    return node
    return None


def _applies(loop: ast.For) -> bool:
    """`for block in self.blocks: x = block(x)`."""
    attributes = (part.attr for part in ast.walk(loop.iter) if isinstance(part, ast.Attribute))
    if not any(re.search(r"block|layer|^h$|stage", name, re.I) for name in attributes):
        return False
    called = calls_in(inside(loop.body), variables_in(loop.target))
    return any(isinstance(call.func, ast.Name) for call in called)


def _is_shallow(module: Module, blocks: ast.expr) -> bool:
    for node in ast.walk(blocks):
        if isinstance(node, ast.comprehension) and isinstance(node.iter, ast.Call):
            count = likely(module, node.iter.args[0] if node.iter.args else None)
            return count is not None and count <= _SHALLOW
        if isinstance(node, ast.List) and node.elts:
            return len(node.elts) <= _SHALLOW
    return False


def _attends(module: Module, program: Program, cls: ast.ClassDef) -> bool:
    """A block of the stack is made of attention, by its name or by what its class names."""
    for made in _blocks(cls):
        if _ATTENTION.search(last_name(made)):
            return True
        found = program.definition(module, made, ast.ClassDef)
        if found is not None and any(_ATTENTION.search(word) for word in names_in(found[1])):
            return True
    return False


def _blocks(cls: ast.ClassDef) -> list[ast.expr]:
    """The classes of what is put into lists of modules."""
    found = []
    for node in ast.walk(cls):
        match node:
            case (
                ast.ListComp(elt=ast.Call() as made)
                | ast.GeneratorExp(elt=ast.Call() as made)
                | ast.Call(func=ast.Attribute(attr="append"), args=[ast.Call() as made])
                | ast.List(elts=[ast.Call() as made, *_])
            ):
                found.append(made.func)
    return found


def _deep_backbone(module: Module, cls: ast.ClassDef) -> ast.stmt | None:
    """`self.x = Backbone(depth=...)` of a package, which has no switch of its own here."""
    for statement, _, call in _attributes(cls):
        depth = next((k.value for k in call.keywords if k.arg in _DEPTHS), None)
        name = module.resolve(call.func)
        if name in _TORCH_STACKS and depth is None and len(call.args) > 1:
            depth = call.args[1]
        count = likely(module, depth)
        shallow = count is not None and count <= _SHALLOW
        if (name in _KEYWORD_ONLY or name in _TORCH_STACKS) and depth and not shallow:
            return statement
    return None


def _checkpoints(module: Module, program: Program) -> Findings:
    for call in module.calls_to(CHECKPOINT):
        if len(call.args) < 2 or not isinstance(call.args[0], ast.Attribute):
            continue
        made = _made(module, call.args[0], call)
        if made is None:
            continue
        if _takes_keywords_only(module, program, made):
            yield module.finding("checkpoint-keyword-only-call", call)
        if _is_stack(module, program, made):
            yield module.finding("checkpoint-whole-backbone", call)


def _made(module: Module, target: ast.Attribute, at: ast.AST) -> ast.Call | None:
    """The call that made `self.x`, in the class around."""
    cls = module.class_of(at)
    attributes = _attributes(cls) if cls is not None else ()
    return next((call for _, name, call in attributes if name == target.attr), None)


def _attributes(cls: ast.ClassDef) -> Iterator[tuple[ast.stmt, str, ast.Call]]:
    """Each `self.name = call(...)` of a class."""
    for node in ast.walk(cls):
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)],
                value=ast.Call() as call,
            ):
                yield node, name, call


def _takes_keywords_only(module: Module, program: Program, made: ast.Call) -> bool:
    """A module's forward takes nothing by position."""
    if module.resolve(made.func) in _KEYWORD_ONLY:
        return True
    found = program.definition(module, made.func, ast.ClassDef)
    body = found[1].body if found is not None else []
    methods = [each for each in body if isinstance(each, ast.FunctionDef)]
    forward = next((each.args for each in methods if each.name == "forward"), None)
    if forward is None or len(forward.args) + len(forward.posonlyargs) != 1:
        return False
    return bool(forward.kwonlyargs) and forward.vararg is None


def _is_stack(module: Module, program: Program, made: ast.Call) -> bool:
    if module.resolve(made.func) in _KEYWORD_ONLY:
        return True
    found = program.definition(module, made.func, ast.ClassDef)
    return found is not None and _stack(*found) is not None
