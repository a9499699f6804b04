"""Judges the options of a training."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ldlm_doctor.finding import Check, Edit, Finding
from ldlm_doctor.options import Group, Option

_LOADER_DOCS = "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader"

WITHOUT_WORKERS = Check(
    "config-loader-without-workers",
    "error",
    "A DataLoader option that needs workers, with zero workers",
    "persistent_workers=True and prefetch_factor with num_workers=0 raise a ValueError when the "
    "DataLoader is made.",
    f"{_LOADER_DOCS}; tried with PyTorch 2.13",
    "PyTorch 1.7 (persistent_workers), 2.0 (prefetch_factor)",
    "Give it workers, or leave the option out: dict(persistent_workers=True, prefetch_factor=n) if "
    "workers else {}.",
)
TOO_MANY_WORKERS = Check(
    "too-many-workers",
    "warning",
    "More DataLoader workers than cores",
    "Each process of a node starts this many. Beyond the cores they wait for each other, take "
    "memory, and slow the training's own threads down; PyTorch warns of it too.",
    f"{_LOADER_DOCS}; torch/utils/data/dataloader.py",
    "",
    "Cores of the node / processes of the node, less one for each process.",
)
MANY_WORKERS = Check(
    "many-workers",
    "info",
    "Many DataLoader workers for each process",
    "Each process of a node starts this many: eight processes with 16 each are 128 beside the "
    "training's own threads.",
    f"{_LOADER_DOCS}",
    "",
    "Compare with the node's cores, and measure: two to eight are enough for most; where many "
    "small "
    "files are the cause, pack them.",
)
LOADER_RESTARTS = Check(
    "workers-not-persistent",
    "info",
    "Workers are started anew for each epoch",
    "persistent_workers is off though there are workers: each epoch begins with a pause.",
    _LOADER_DOCS,
    "PyTorch 1.7",
    "persistent_workers: true where there are several epochs.",
)
NOT_PINNED = Check(
    "memory-not-pinned",
    "info",
    "Batches are not in pinned memory",
    "Copies to the GPU are then synchronous, and wait for the training's stream.",
    _LOADER_DOCS,
    "",
    "pin_memory: true where it trains on GPUs.",
)
KEEP_ZERO = Check(
    "keep-zero-checkpoints",
    "error",
    "Checkpoint rotation that keeps 0",
    "What 0 means differs: diffusers' scripts delete every checkpoint before each save, a slice "
    "[:-0] deletes none at all, and a loop `while len(kept) > n` deletes the one just written.",
    "train_text_to_image.py of diffusers (checkpoints_total_limit); Python's slices",
    "",
    "Keep 1 or more; where all are to be kept, leave the option out.",
)
NOTHING_SAVED = Check(
    "nothing-saved",
    "warning",
    "No checkpoint is kept",
    "save_top_k: 0 of Lightning's ModelCheckpoint saves nothing.",
    "https://lightning.ai/docs/pytorch/stable/api/lightning.pytorch.callbacks.ModelCheckpoint.html",
    "Lightning",
    "save_top_k: 1 or more, -1 for all.",
)
NO_ROTATION = Check(
    "no-checkpoint-rotation",
    "info",
    "Checkpoints are saved again and again, and none is deleted",
    "transformers keeps all of them unless it is given a limit; with optimizer states the disk is "
    "full sooner than the training is done.",
    "TrainingArguments of transformers (save_total_limit)",
    "transformers",
    "save_total_limit: 3, or more.",
)
GROUP_TIMEOUT = Check(
    "ddp-timeout-days",
    "warning",
    "The process group's timeout is longer than a day",
    "A hang is never ended: all GPUs wait for as long as this.",
    "ddp_timeout of transformers (1800 s), nccl_timeout of verl (600 s), "
    "--distributed-timeout-minutes of Megatron-LM (10)",
    "",
    "Half an hour; let one process prepare the data beforehand instead of all waiting for it.",
)
GROUP_TIMEOUT_HOURS = Check(
    "ddp-timeout-hours",
    "info",
    "The process group's timeout is longer than an hour",
    "All GPUs wait this long for one that hangs.",
    "ddp_timeout of transformers (1800 s), nccl_timeout of verl (600 s), "
    "--distributed-timeout-minutes of Megatron-LM (10)",
    "",
    "Half an hour, unless a known pause is longer.",
)
FIND_UNUSED = Check(
    "find-unused-parameters",
    "info",
    "DDP looks for unused parameters in every step",
    "It walks the graph after each forward. Where every parameter takes part in each step it is "
    "wasted; where parts are frozen or left out by mode it is needed, and False fails at the "
    "second "
    'step ("Expected to have finished reduction").',
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
    "; tried with PyTorch 2.13",
    "",
    "Freeze before DDP wraps the model, and give false only if a run of a few steps passes.",
)
STATIC_GRAPH = Check(
    "static-graph-with-modes",
    "error",
    "static_graph where the graph changes",
    'At the first change of mode DDP fails: "Your training graph has changed". With no_sync in the '
    "first step it fails too, or does not reduce.",
    "tried with PyTorch 2.13; pytorch issue 143580",
    "PyTorch 1.11",
    "static_graph: false, and freeze what the mode does not train before DDP wraps the model.",
)
NAN_UNCHECKED = Check(
    "nan-check-off",
    "warning",
    "Nobody looks for NaN in loss and gradients",
    "Megatron-LM stops at a loss that is NaN, unless it is told not to look: with bf16 the weights "
    "are then NaN after the step, and the training goes on with them.",
    "megatron/training/arguments.py (--no-check-for-nan-in-loss-and-grad)",
    "",
    "Leave the option out; it is for measuring speed.",
)
NAN_FILTERED = Check(
    "nan-filtered-from-log",
    "warning",
    "A loss that is NaN does not come into the log",
    "transformers puts the mean of the losses before in its place: the log looks healthy while "
    "the training has diverged.",
    "TrainingArguments of transformers (logging_nan_inf_filter, true by default)",
    "",
    "logging_nan_inf_filter: false",
)
CHECKS = (
    WITHOUT_WORKERS, TOO_MANY_WORKERS, MANY_WORKERS, LOADER_RESTARTS, NOT_PINNED, KEEP_ZERO,
    NOTHING_SAVED, NO_ROTATION, GROUP_TIMEOUT, GROUP_TIMEOUT_HOURS, FIND_UNUSED, STATIC_GRAPH,
    NAN_UNCHECKED, NAN_FILTERED,
)  # fmt: skip

TIMEOUTS = {"ddp_timeout": 1, "nccl_timeout": 1, "distributed_timeout_minutes": 60}
"""Options for the process group's timeout (of transformers, verl and Megatron-LM), in seconds."""
_KEPT = ("keep_last_n", "keep_last", "keep_last_k", "keep_n", "keep_last_n_checkpoints",
         "keep_n_checkpoints", "max_checkpoints", "max_ckpts", "max_to_keep", "max_keep",
         "num_checkpoints_to_keep", "num_keep", "keep_checkpoints", "checkpoints_total_limit",
         "checkpoint_total_limit", "keep_last_n_ckpts", "keep_last_checkpoints", "keep_ckpts",
         "total_limit", "num_to_keep", "keep_max")  # fmt: skip
_WORKERS = (
    "num_workers", "dataloader_num_workers", "data_num_workers", "loader_num_workers",
    "train_num_workers", "val_num_workers", "eval_num_workers", "test_num_workers",
    "num_data_workers", "num_loader_workers", "num_dataloader_workers", "dataloader_workers",
    "data_workers", "loader_workers", "train_workers", "n_workers",
)  # fmt: skip
_MODES = frozenset({"sequential", "random", "mixed", "alternate", "alternating", "cycle"})


def judge(group: Group) -> Iterator[Finding]:
    """All findings in options that are given together."""
    for rule in _RULES:
        yield from rule(group)


def loader(group: Group) -> Iterator[Finding]:
    """Zero workers with options that need some; and options that waste the ones there are."""
    workers = next(_workers(group), None)
    if workers is None or workers.number is None:
        return
    persistent = list(group.of(*_either("persistent_workers")))
    if workers.number == 0:
        for option in persistent:
            if option.truth:
                yield option.finding(WITHOUT_WORKERS, _with(workers), _switched_off(option))
        for option in group.of(*_either("prefetch_factor")):
            if option.number:
                yield option.finding(WITHOUT_WORKERS, _with(workers))
    for option in persistent:
        if workers.number > 0 and option.truth is False:
            yield option.finding(LOADER_RESTARTS, _with(workers))
    for option in group.of(*_either("pin_memory")):
        if option.truth is False:
            yield option.finding(NOT_PINNED)


def workers(group: Group) -> Iterator[Finding]:
    """More than the node has cores, where that is known; else very many."""
    for option in _workers(group):
        number = option.number or 0
        total = number * (group.processes or 1)
        counted = f"{number} workers x {group.processes or 'all'} processes of a node"
        if group.cores is not None and number > 1:
            if total > group.cores:
                detail = f"{counted}, {group.cores} cores"
                yield option.finding(TOO_MANY_WORKERS, detail)
        elif number >= 32 or total >= 128 or (number >= 16 and group.processes is None):
            yield option.finding(MANY_WORKERS, counted)


def rotation(group: Group) -> Iterator[Finding]:
    """0 kept, nothing kept, or everything."""
    for option in group.of(*_KEPT):
        if option.number == 0:
            yield option.finding(KEEP_ZERO)
    for option in group.of("save_top_k"):
        if option.number == 0 and not any(last.truth for last in group.of("save_last")):
            yield option.finding(NOTHING_SAVED)
    limits = {"save_total_limit", "save_only_model"} & group.all_names
    for option in group.of("save_steps"):
        is_trainer = {"output_dir", "per_device_train_batch_size"} <= group.all_names
        if is_trainer and not limits:
            yield option.finding(NO_ROTATION)


def timeouts(group: Group) -> Iterator[Finding]:
    """How long a collective may take, in seconds."""
    for option in group.of(*TIMEOUTS):
        seconds = (option.number or 0) * TIMEOUTS[option.name]
        if seconds > 86_400:
            yield option.finding(GROUP_TIMEOUT, f"{seconds} s are {seconds / 86_400:.0f} days")
        elif seconds > 3600:
            yield option.finding(GROUP_TIMEOUT_HOURS, f"{seconds / 3600:.1f} hours")


def divergence(group: Group) -> Iterator[Finding]:
    """What keeps a NaN from being seen."""
    for option in group.of("no_check_for_nan_in_loss_and_grad"):
        if option.truth is not False:
            yield option.finding(NAN_UNCHECKED)
    for option in group.of("logging_nan_inf_filter"):
        if option.truth:
            yield option.finding(NAN_FILTERED, "", option.with_value("false"))


def distributed(group: Group) -> Iterator[Finding]:
    """Flags of DistributedDataParallel."""
    for option in group.of("find_unused_parameters", "ddp_find_unused_parameters"):
        if option.truth:
            yield option.finding(FIND_UNUSED)
    for option in group.of("strategy"):
        if option.value == "ddp_find_unused_parameters_true":
            yield option.finding(FIND_UNUSED)
    modes = [
        o for o in group.options if (o.value or "").lower() in _MODES and "sampl" not in o.name
    ]
    frozen = [o for o in group.options if o.name.startswith("freeze") and o.truth]
    for option in group.of("static_graph", "ddp_static_graph"):
        if option.truth and (modes or frozen):
            other = (modes or frozen)[0]
            edit = _switched_off(option)
            yield option.finding(STATIC_GRAPH, f"{other.name}: {other.value}", edit)


def _workers(group: Group) -> Iterator[Option]:
    """Numbers of workers of a DataLoader; other programs have workers too."""
    return group.of(*_WORKERS, *(("workers",) if group.launched else ()))


def _either(name: str) -> tuple[str, str]:
    return name, f"dataloader_{name}"


def _with(option: Option) -> str:
    return f"{option.name} is {option.value} in line {option.line}"


def _switched_off(option: Option) -> Edit | None:
    """False, in the spelling that the file uses."""
    word = option.value or ""
    return option.with_value("False" if word[:1] == "T" else "false") if word != "1" else None


_RULES: tuple[Callable[[Group], Iterator[Finding]], ...] = (
    loader, workers, rotation, timeouts, divergence, distributed,
)  # fmt: skip
