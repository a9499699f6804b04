"""Names and numbers: what trainers write, as the contract's section 2 calls it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ldlm_monitor.model.names import CANONICAL_PREFIXES, CANONICAL_VALUES

NUMBER = (
    r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?"
    r"|(?i:nan|inf(?:inity)?)(?:\.0?)?)"
)
"""A number as C and Python print it, with `nan.0` and `inf.` (Lightning's bar)."""
THOUSANDS = r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?"
"""A number in groups of thousands. Only for formats whose fields no comma separates."""

_NUMBER = re.compile(NUMBER)
_WRAPPED = re.compile(r"(?:tensor|np\.\w+|torch\.tensor)\((?P<inner>[^,()]*)(?:,[^()]*)?\)")

_ALIASES = {
    "loss": (
        "train_loss training_loss total_loss train_total_loss lm_loss reduced_train_loss"
        " loss_train_total train_ce_loss train_crossentropyloss train_loss_step step_loss"
        " avr_loss loss_current learning_loss batch_loss loss_metrics_global_avg_loss"
        " avg_loss average_loss mean_loss running_loss current_loss train_avg_loss"
        " avg_train_loss train_loss_avg metrics_train_languagecrossentropy"
        " train_languagecrossentropy languagecrossentropy loss_train epoch_loss"
    ),
    "eval_loss": (
        "val_loss valid_loss validation_loss test_loss eval_eval_loss lm_loss_value"
        " eval_avg_loss validation_metrics_loss avg_val_loss val_avg_loss avg_eval_loss"
        " avg_validation_loss dev_loss loss_val loss_valid loss_validation loss_test loss_eval"
        " val_epoch_loss"
    ),
    "ema_loss": "ema_loss",
    "ppl": "perplexity train_ppl train_perplexity lm_loss_ppl",
    "accuracy": (
        "acc train_acc train_accuracy training_accuracy mean_token_accuracy rewards_accuracies"
        " accuracy_train acc_train epoch_accuracy"
    ),
    "accuracy_text": "text_accuracy text_acc",
    "grad_norm": (
        "gnorm gradnorm grad gradient_norm train_grad_norm global_grad_norm grad_norm_global"
        " total_grad_norm optim_total_grad_norm optim_grad_norm l2_norm_grad_global"
        " norm_avg_grad_norm avg_grad_norm actor_grad_norm learning_grad_norm grdn"
    ),
    "param_norm": "params_norm learning_param_norm",
    "learning_rate": (
        "lr train_lr train_learning_rate current_lr actor_lr optim_lr_group_0"
        " optim_learning_rate_group0 lr_pg0 lr_unet learning_current_learning_rate"
    ),
    "loss_scale": "train_loss_scale grad_scale optim_loss_scale",
    "skipped_steps": "skipped number_of_skipped_iterations skipped_loss_spikes",
    "step_seconds": (
        "step_time iter_time time_per_step time_per_iteration seconds_per_step sec_per_step"
        " train_step_timing train_step_timing_in_s iteration_time perf_step_time_seconds"
        " time_metrics_end_to_end_s seconds_per_iteration sec_per_iter timing_s_step"
        " step_time_s iter_time_s batch_cost avg_batch_cost updt_s"
    ),
    "data_seconds": (
        "data_time data_loading_time dataloader_time time_metrics_data_loading_s"
        " throughput_device_data_loading_s data_cost reader_cost avg_reader_cost data_s"
    ),
    "samples_per_second": (
        "samples_per_sec train_samples_per_second train_samples_per_sec samples_sec samples_s"
        " currsamplespersec throughput_samples_per_sec examples_per_second examples_per_sec"
        " examples_sec images_per_sec images_per_second images_sec imgs_per_sec img_s"
        " sequences_per_second"
    ),
    "tokens_per_second": (
        "tokens_per_sec train_tokens_per_second train_tokens_per_sec wps tokens_sec tok_s"
        " tok_sec tokens_s throughput_tokens_per_sec toks_per_sec"
    ),
    "tokens_per_second_per_device": (
        "tps tgs tokens_per_gpu_per_second_tgs tokens_s_device tokens_per_second_per_gpu"
        " tokens_per_sec_per_gpu tokens_train_per_sec_per_gpu throughput_device_tps"
        " throughput_device_tokens_per_sec throughput_device_tokens_per_second"
        " throughput_tps train_tokens_per_second_per_device perf_per_device_tokens_per_sec"
    ),
    "steps_per_second": (
        "it_s ups train_steps_per_second steps_per_sec iters_per_sec iterations_per_second"
        " throughput_batches_per_sec throughput_device_batches_per_second it_per_sec"
        " train_it_per_sec throughput_device_bps batches_per_second"
    ),
    "flops_per_second_per_device": "approx_flops_per_gpu flops_per_device",
    "mfu": "device_mfu throughput_device_mfu mfu_actor train_mfu perf_mfu",
    "samples_total": "consumed_samples consumed_train_samples",
    "tokens_total": (
        "consumed_tokens total_tokens num_tokens num_input_tokens_seen tokens_seen"
        " throughput_total_tokens train_total_tokens train_num_input_tokens_seen"
    ),
    "total_steps": "max_steps train_iters num_training_steps",
}
"""Names in the wild (formats.md section 12), as `plain` spells them."""

_SCALED = {
    ("step_seconds", 1e-3): (
        "elapsed_time_per_iteration_ms step_time_ms iter_time_ms step_avg_ms time_per_step_ms"
        " throughput_elapsed_ms_per_iteration_ms ms_per_step"
    ),
    ("data_seconds", 1e-3): "data_time_ms",
    ("flops_per_second_per_device", 1e12): (
        "tflops tflop_s throughput_per_gpu_tflop_s_gpu tflop_s_device tflops_per_gpu"
        " throughput_device_tflops perf_per_device_tflops_per_sec perf_per_device_tflops"
    ),
    ("mfu", 1e-2): "mfu_percent mfu_pct",
    ("memory_allocated_bytes", 2.0**30): (
        "peak_memory_alloc memory_max_allocated_gib memory_max_alloc_gib memory_max_active_gib"
        " gpu_memory_gpu_active_mem_gib vram_allocated"
    ),
    ("memory_reserved_bytes", 2.0**30): (
        "peak_memory_reserved memory_device_reserved_gib memory_max_reserved_gib vram_reserved"
    ),
    ("memory_allocated_bytes", 1e9): "gpu_memory_allocated_gb",
    ("memory_reserved_bytes", 1e9): "gpu_memory_reserved_gb",
    ("memory_allocated_bytes", 2.0**20): "system_peak_gpu_memory_mb peak_gpu_memory_mb",
}
"""The same, for what is told in another unit than the canonical one: with its factor."""

STEP_KEYS = frozenset(
    (
        "step",
        "steps",
        "global_step",
        "global_steps",
        "iteration",
        "iter",
        "num_updates",
        "current_steps",
        "completed_step",
        "trainer_global_step",
        "train_global_step",
        "train_step",
        "iteration_index",
        "it",
        "optimizer_step",
        "completed_steps",
        "train_iter",
    )
)
"""What optimizer steps are called, as `plain` spells it."""
EPOCH_KEYS = frozenset(("epoch", "train_epoch", "epch"))


@dataclass(frozen=True, slots=True)
class Measure:
    """A canonical name, and what the trainer's number is multiplied by to be in its unit."""

    name: str
    factor: float = 1.0


_KNOWN = {
    **{alias: Measure(name) for name, names in _ALIASES.items() for alias in names.split()},
    **{
        alias: Measure(name, factor)
        for (name, factor), names in _SCALED.items()
        for alias in names.split()
    },
}
_MEASURED = frozenset(("loss", "eval_loss", "grad_norm", "accuracy", "step_seconds", "ppl"))
_OPTIMIZER_LR = re.compile(r"lr_[a-z0-9]+_group0")


def number(text: str) -> float | None:
    """The number that `text` spells, whole; None where it spells none.

    Reads every non-finite spelling of formats.md section 11 that is a number:
    any case, quotes, `nan.0`, `tensor(nan, device='cuda:0')`, `np.float64(nan)`.
    """
    if "_" in text or not text.isascii():
        return _unusual(text)
    try:
        return float(text)
    except ValueError:
        return _unusual(text)


def _unusual(text: str) -> float | None:
    stripped = text.strip().strip("'\"")
    wrapped = _WRAPPED.fullmatch(stripped)
    if wrapped:
        stripped = wrapped["inner"].strip()
    if not _NUMBER.fullmatch(stripped):
        return None
    if stripped[-1] in ".0" and "n" in stripped.lower():
        stripped = stripped.rstrip(".0")
    return float(stripped)


@lru_cache(maxsize=4096)
def plain(key: str) -> str:
    """A key in lower case, its words joined by single underscores."""
    return re.sub(r"[^a-z0-9]+", "_", key.lower()).strip("_")


@lru_cache(maxsize=4096)
def measure(key: str) -> Measure:
    """What a metric's key means; an unknown one keeps its name, lower-cased."""
    name = re.sub(r"[^a-z0-9_]", "_", key.lower())
    spelled = plain(key)
    known = _KNOWN.get(spelled)
    if known is not None:
        return known
    if spelled in CANONICAL_VALUES:
        return Measure(spelled)
    if _OPTIMIZER_LR.fullmatch(spelled):
        return Measure("learning_rate")
    component = name.removesuffix("_loss")
    if component != name and component and not name.startswith(CANONICAL_PREFIXES):
        return Measure(f"loss_{component.removeprefix('train_')}")
    return Measure(name)


def scaled(value: float, factor: float) -> float:
    """A number in another unit; by division where that is exact: 18 ms are 0.018 s."""
    return value / (1 / factor) if factor < 1 else value * factor


def put(values: dict[str, float], key: str, value: float) -> None:
    """Add a number under its canonical name, unless one that is called just so is there."""
    meant = measure(key)
    if meant.factor != 1:
        value = scaled(value, meant.factor)
    if meant.name == key:
        values[key] = value
    else:
        values.setdefault(meant.name, value)


def canonical(key: str) -> str:
    """The canonical name of a metric's key."""
    return measure(key).name


@lru_cache(maxsize=4096)
def is_metric(key: str) -> bool:
    """Whether a trainer's key is a metric's name that the vocabulary or the contract has."""
    spelled = plain(key)
    return spelled in _KNOWN or spelled in CANONICAL_VALUES


def tells_of_training(values: Mapping[str, float]) -> bool:
    """Whether canonical values are what only a training has, and no settings file."""
    return any(name in _MEASURED or name.startswith(("loss_", "eval_")) for name in values)


@lru_cache(maxsize=4096)
def is_known(name: str) -> bool:
    """Whether a canonical name is one that the contract lists."""
    return name in CANONICAL_VALUES or name.startswith(CANONICAL_PREFIXES)
