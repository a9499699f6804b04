"""How a model is wrapped for several ranks, and what its modes do to that."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ldlm_doctor.finding import Check, Edit, Finding
from ldlm_doctor.python_code.edits import keyword_added, replaced
from ldlm_doctor.python_code.freezing import freezing
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import DDP, Program
from ldlm_doctor.python_code.values import Arguments, arguments, constant

_DOCS = (
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
)
FREEZES = Check(
    id="ddp-modes-freeze-parameters",
    severity="critical",
    title="Parameters are frozen after DDP has counted them",
    why="DDP waits for a gradient of every parameter that was trainable when it wrapped the "
    "model. What is frozen later gives none: the next step raises 'Expected to have finished "
    "reduction in the prior iteration', and the step before it was not reduced, so that the "
    "ranks have drifted apart already.",
    source=f"{_DOCS}; run with 2 ranks of torch 2.13",
    since="1.0",
    fix="Freeze before wrapping, the same on every rank, and wrap anew where the mode changes; "
    "as the code stands it needs find_unused_parameters=True.",
)
STATIC_MODES = Check(
    id="ddp-static-graph-with-modes",
    severity="critical",
    title="static_graph=True, but the parameters that are trained change",
    why="static_graph fixes which parameters get gradients in the first step. At the first "
    "change of the mode the step raises 'Your training graph has changed in this iteration'.",
    source=f"{_DOCS}; run with 2 ranks of torch 2.13",
    since="1.11",
    fix="Leave static_graph out, and freeze before wrapping.",
)
STATIC_NO_SYNC = Check(
    id="ddp-static-graph-with-no-sync",
    severity="error",
    title="static_graph=True together with no_sync()",
    why="A first step under no_sync() ends in an internal assertion, and later ones may go "
    "unreduced without a word.",
    source="https://github.com/pytorch/pytorch/issues/143580; run with torch 2.13",
    since="1.11",
    fix="Leave static_graph out.",
)
UNUSED = Check(
    id="ddp-find-unused-parameters",
    severity="warning",
    title="Every step searches the graph for unused parameters",
    why="find_unused_parameters=True walks the whole autograd graph after each forward pass. "
    "Where every parameter gets a gradient that is pure loss, and DDP says so in a warning. "
    "Where some get none it is needed, so that no edit is offered.",
    source=_DOCS,
    since="1.0",
    fix="Find out which parameters get no gradient (TORCH_DISTRIBUTED_DEBUG=INFO names them), "
    "freeze those before wrapping, then leave the option out.",
)
BUCKET_VIEW = Check(
    id="ddp-gradient-as-bucket-view",
    severity="info",
    title="Gradients are kept twice",
    why="Without gradient_as_bucket_view=True the gradients and DDP's buckets are two copies: "
    "memory of the size of all gradients, and a copy at each step.",
    source=_DOCS,
    since="1.7",
    fix="gradient_as_bucket_view=True, unless gradients are detached in place.",
)
BUFFERS = Check(
    id="ddp-broadcast-buffers",
    severity="info",
    title="Constant buffers are sent from rank 0 before every forward pass",
    why="broadcast_buffers is on unless told otherwise. It serves running statistics, such as "
    "BatchNorm's; other buffers are usually constants.",
    source=_DOCS,
    since="1.0",
    fix="broadcast_buffers=False (torch 2.13 and newer: forward_sync_buffers=False).",
)
STATISTICS = Check(
    id="ddp-unsynced-batch-norm",
    severity="warning",
    title="BatchNorm's statistics differ between ranks",
    why="With broadcast_buffers=False each rank keeps running statistics of its own share of "
    "the data; the checkpoint holds those of the rank that saves.",
    source=_DOCS,
    since="1.0",
    fix="torch.nn.SyncBatchNorm.convert_sync_batchnorm(model), or leave broadcast_buffers on.",
)
CHECKS = (FREEZES, STATIC_MODES, STATIC_NO_SYNC, UNUSED, BUCKET_VIEW, BUFFERS, STATISTICS)
_POSITIONAL = (
    "module", "device_ids", "output_device", "dim", "broadcast_buffers", "process_group",
    "bucket_cap_mb", "find_unused_parameters", "check_reduction", "gradient_as_bucket_view",
    "static_graph",
)  # fmt: skip


def inspect(module: Module, program: Program) -> Iterator[Finding]:
    """Each place where DDP is applied."""
    for call in module.calls_to(DDP):
        given = arguments(module, call, _POSITIONAL)
        place = freezing(module, program)
        yield from _unused(module, program, call, given, place)
        yield from _static(module, program, call, given, place)
        if program.trains(module):
            yield from _memory(module, program, call, given)
            yield from _buffers(module, program, call, given)


def _unused(
    module: Module, program: Program, call: ast.Call, given: Arguments, place: str
) -> Iterator[Finding]:
    option, static = given["find_unused_parameters"], given["static_graph"]
    value = constant(module, option) if option is not None else None
    if value is True:
        detail = f"needed as it is: {place}" if place else ""
        yield module.finding(UNUSED, option or call, detail)
    elif place and (given.lacks("find_unused_parameters") or value is False):
        if static is not None and constant(module, static) is True:
            return
        edits: tuple[Edit, ...] = ()
        if isinstance(option, ast.Constant):
            edits = (replaced(module, option, "True"),)
        elif option is None:
            edits = keyword_added(module, call, "find_unused_parameters=True")
        if program.any_relative(_computes_again_reentrantly, module):
            edits = ()
        yield module.finding(FREEZES, option or call, place, edits)


def _static(
    module: Module, program: Program, call: ast.Call, given: Arguments, place: str
) -> Iterator[Finding]:
    option = given["static_graph"]
    if option is None or constant(module, option) is not True:
        return
    off: tuple[Edit, ...] = ()
    reentrant = program.any_relative(_computes_again_reentrantly, module)
    if isinstance(option, ast.Constant) and not reentrant:
        off = (replaced(module, option, "False"),)
    if place:
        unused = given["find_unused_parameters"]
        if isinstance(unused, ast.Constant) and unused.value is False:
            off = (*off, replaced(module, unused, "True")) if off else ()
        elif given.lacks("find_unused_parameters") and off:
            off = (*off, *keyword_added(module, call, "find_unused_parameters=True"))
        yield module.finding(STATIC_MODES, option, place, off)
    elif program.any_relative(_holds_back, module):
        yield module.finding(STATIC_NO_SYNC, option, edits=off)


def _computes_again_reentrantly(module: Module) -> bool:
    """Activations are checkpointed in the form that some programs need static_graph for."""
    for call in module.calls:
        if module.resolve(call.func).startswith("torch.utils.checkpoint."):
            option = next((k.value for k in call.keywords if k.arg == "use_reentrant"), None)
            if not (isinstance(option, ast.Constant) and option.value is False):
                return True
    return False


def _holds_back(module: Module) -> bool:
    return "no_sync" in module.methods_called


def _memory(
    module: Module, program: Program, call: ast.Call, given: Arguments
) -> Iterator[Finding]:
    option = given["gradient_as_bucket_view"]
    if option is not None:
        if isinstance(option, ast.Constant) and option.value is False:
            yield module.finding(BUCKET_VIEW, option)
        return
    if not given.lacks("gradient_as_bucket_view"):
        return
    if program.any_relative(_replaces_gradients, module):
        yield module.finding(BUCKET_VIEW, call, "gradients are replaced or detached by hand here")
        return
    edits = keyword_added(module, call, "gradient_as_bucket_view=True")
    yield module.finding(BUCKET_VIEW, call, edits=edits)


def _replaces_gradients(module: Module) -> bool:
    """`p.grad = something`, or `p.grad.detach_()`: buckets and gradients would part, or raise."""
    for node in module.nodes.get(ast.Assign, ()):
        match node:
            case ast.Assign(targets=[ast.Attribute(attr="grad")], value=value):
                if not (isinstance(value, ast.Constant) and value.value is None):
                    return True
    return "detach_" in module.methods_called


def _buffers(
    module: Module, program: Program, call: ast.Call, given: Arguments
) -> Iterator[Finding]:
    option = given["broadcast_buffers"] or given["forward_sync_buffers"]
    has_statistics = program.any_relative(_uses_batch_norm, module)
    if option is not None and constant(module, option) is False and has_statistics:
        yield module.finding(STATISTICS, option)
    elif (
        given.lacks("broadcast_buffers")
        and given.lacks("forward_sync_buffers")
        and not has_statistics
        and program.any_relative(_has_buffers, module)
    ):
        yield module.finding(BUFFERS, call)


def _uses_batch_norm(module: Module) -> bool:
    words = module.words
    return any(word.startswith("BatchNorm") for word in words) and not any(
        word in words for word in ("SyncBatchNorm", "convert_sync_batchnorm")
    )


def _has_buffers(module: Module) -> bool:
    return "register_buffer" in module.methods_called
