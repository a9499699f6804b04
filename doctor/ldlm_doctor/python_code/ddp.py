"""How a model is wrapped for several ranks, and what its modes do to that."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ldlm_doctor.model import Edit, Finding
from ldlm_doctor.python_code.edits import keyword_added, replaced
from ldlm_doctor.python_code.freezing import freezing
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import DDP, Program
from ldlm_doctor.python_code.values import Arguments, arguments, constant

_DOCS = (
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
)
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
        yield module.finding("ddp-find-unused-parameters", option or call, detail)
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
        yield module.finding("ddp-modes-freeze-parameters", option or call, place, edits)


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
        yield module.finding("ddp-static-graph-with-modes", option, place, off)
    elif program.any_relative(_holds_back, module):
        yield module.finding("ddp-static-graph-with-no-sync", option, edits=off)


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
            yield module.finding("ddp-gradient-as-bucket-view", option)
        return
    if not given.lacks("gradient_as_bucket_view"):
        return
    if program.any_relative(_replaces_gradients, module):
        yield module.finding(
            "ddp-gradient-as-bucket-view", call, "gradients are replaced or detached by hand here"
        )
        return
    edits = keyword_added(module, call, "gradient_as_bucket_view=True")
    yield module.finding("ddp-gradient-as-bucket-view", call, edits=edits)


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
        yield module.finding("ddp-unsynced-batch-norm", option)
    elif (
        given.lacks("broadcast_buffers")
        and given.lacks("forward_sync_buffers")
        and not has_statistics
        and program.any_relative(_has_buffers, module)
    ):
        yield module.finding("ddp-broadcast-buffers", call)


def _uses_batch_norm(module: Module) -> bool:
    words = module.words
    return any(word.startswith("BatchNorm") for word in words) and not any(
        word in words for word in ("SyncBatchNorm", "convert_sync_batchnorm")
    )


def _has_buffers(module: Module) -> bool:
    return "register_buffer" in module.methods_called
