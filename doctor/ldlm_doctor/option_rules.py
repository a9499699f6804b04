"""Judges the options of a training."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ldlm_doctor.model import Edit, Findings, data
from ldlm_doctor.options import Group
from ldlm_doctor.setting import Setting
from ldlm_monitor.text.format import duration

TIMEOUTS = {"ddp_timeout": 1, "nccl_timeout": 1, "distributed_timeout_minutes": 60}
"""Options for the process group's timeout (of transformers, verl and Megatron-LM), in seconds."""
_MODES = frozenset({"sequential", "random", "mixed", "alternate", "alternating", "cycle"})
_NODES = ("nnodes", "num_machines", "num_nodes")
_ADDRESSES = ("master_addr", "main_process_ip", "rdzv_endpoint")
_HERE = frozenset({"localhost", "127.0.0.1", "[::1]", "0.0.0.0"})


def judge(group: Group) -> Findings:
    """All findings in options that are given together."""
    for rule in _RULES:
        yield from rule(group)


def loader(group: Group) -> Findings:
    """Zero workers with options that need some; and options that waste the ones there are."""
    workers = next(_workers(group), None)
    if workers is None or workers.number is None:
        return
    if workers.number == 0:
        for option in group.on("persistent_workers", "dataloader_persistent_workers"):
            edit = _switched_off(option)
            yield option.finding("config-loader-without-workers", _with(workers), edit)
        for option in group.of("prefetch_factor", "dataloader_prefetch_factor"):
            if option.number:
                yield option.finding("config-loader-without-workers", _with(workers))
    for option in group.of("persistent_workers", "dataloader_persistent_workers"):
        if workers.number > 0 and option.truth is False:
            yield option.finding("workers-not-persistent", _with(workers))
    for option in group.of("pin_memory", "dataloader_pin_memory"):
        if option.truth is False:
            yield option.finding("memory-not-pinned")


def workers(group: Group) -> Findings:
    """More than the node has cores, where that is known; else very many."""
    for option in _workers(group):
        number = option.number or 0
        total = number * (group.processes or 1)
        counted = f"{number} workers x {group.processes or 'all'} processes of a node"
        if group.cores is not None and number > 1:
            if total > group.cores:
                detail = f"{counted}, {group.cores} cores"
                yield option.finding("too-many-workers", detail)
        elif number >= 32 or total >= 128 or (number >= 16 and group.processes is None):
            yield option.finding("many-workers", counted)


def rotation(group: Group) -> Findings:
    """Everything is kept."""
    limits = {"save_total_limit", "save_only_model"} & group.all_names
    for option in group.of("save_steps"):
        is_trainer = {"output_dir", "per_device_train_batch_size"} <= group.all_names
        if is_trainer and not limits:
            yield option.finding("no-checkpoint-rotation")


def timeouts(group: Group) -> Findings:
    """How long a collective may take, in seconds."""
    for option in group.of(*TIMEOUTS):
        seconds = (option.number or 0) * TIMEOUTS[option.name]
        if seconds > 86_400:
            yield option.finding("ddp-timeout-days", duration(seconds))


def distributed(group: Group) -> Findings:
    """Flags of DistributedDataParallel."""
    strategies = (o for o in group.of("strategy") if o.value == "ddp_find_unused_parameters_true")
    unused = group.on("find_unused_parameters", "ddp_find_unused_parameters")
    yield from (option.finding("find-unused-parameters") for option in (*unused, *strategies))
    modes = [
        o for o in group.options if (o.value or "").lower() in _MODES and "sampl" not in o.name
    ]
    frozen = [o for o in group.options if o.name.startswith("freeze") and o.truth]
    for option in group.on("static_graph", "ddp_static_graph") if modes or frozen else ():
        other, edit = (modes or frozen)[0], _switched_off(option)
        yield option.finding("static-graph-with-modes", f"{other.name}: {other.value}", edit)


def launchers(group: Group) -> Findings:
    """The rendezvous of several nodes."""
    nodes = max((option.number or 1 for option in group.of(*_NODES)), default=1)
    for option in group.of(*_ADDRESSES) if nodes > 1 else ():
        host = (option.value or "").rsplit(":", 1)[0] if option.value != "[::1]" else "[::1]"
        if host in _HERE:
            yield option.finding("rendezvous-on-localhost", f"{nodes} nodes")


def _workers(group: Group) -> Iterator[Setting]:
    """Numbers of workers of a DataLoader; other programs have workers too."""
    return group.of(*data("names")["workers"], *(("workers",) if group.launched else ()))


def _with(option: Setting) -> str:
    return f"{option.name} is {option.value} in line {option.line}"


def _switched_off(option: Setting) -> Edit | None:
    """False, in the spelling that the file uses."""
    word = option.value or ""
    return option.with_value("False" if word[:1] == "T" else "false") if word != "1" else None


_RULES: tuple[Callable[[Group], Findings], ...] = (
    loader, workers, rotation, timeouts, distributed, launchers,
)  # fmt: skip
