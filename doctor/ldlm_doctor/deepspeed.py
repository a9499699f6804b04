"""Judges DeepSpeed's configuration, a JSON file of its own or a part of a YAML file.

What the settings do is taken from DeepSpeed 0.19.8 and its documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeGuard

import yaml

from ldlm_doctor.finding import Check, Edit, Finding
from ldlm_doctor.options import Option
from ldlm_doctor.yaml_nodes import Document, scalars

_DOCS = "https://www.deepspeed.ai/docs/config-json/"

STATIC_SCALE = Check(
    "deepspeed-static-loss-scale",
    "warning",
    "fp16 with a loss scale that never changes",
    "0 means dynamic. With any other number a step whose gradients overflow is skipped, and the "
    "scale stays: if the overflow stays too, every step is skipped, and the training learns "
    "nothing without a word.",
    f"{_DOCS}#fp16-training-options; deepspeed/runtime/fp16/loss_scaler.py",
    "",
    "loss_scale: 0, or bf16 where the GPUs have it.",
)
SCALE_FLOOR = Check(
    "deepspeed-loss-scale-floor",
    "warning",
    "The loss scale may sink to nothing",
    "DeepSpeed stops a training that overflows at the least scale. With min_loss_scale 0 it never "
    "gets there: the scale is halved without end, gradients vanish, and the divergence is hidden. "
    "DeepSpeed 0.19 refuses the value.",
    "deepspeed/runtime/fp16/loss_scaler.py and precision_config.py",
    "",
    "min_loss_scale: 1, the default.",
)
TWO_PRECISIONS = Check(
    "deepspeed-two-precisions",
    "error",
    "fp16 and bf16 are both enabled",
    "DeepSpeed stops at the start: bfloat16 and fp16 modes cannot be enabled at once.",
    "deepspeed/runtime/config.py",
    "",
    "Enable one of them; bf16 needs no loss scale.",
)
BATCH_MISMATCH = Check(
    "deepspeed-batch-mismatch",
    "error",
    "The batch sizes contradict each other",
    "train_batch_size must be train_micro_batch_size_per_gpu x gradient_accumulation_steps x "
    "processes: no number of processes makes these equal, and DeepSpeed stops at the start.",
    f"{_DOCS}#batch-size-related-parameters; deepspeed/runtime/config.py",
    "",
    "Give two of the three, or a total that the product divides.",
)
CLIPPING_OFF = Check(
    "deepspeed-clipping-off",
    "info",
    "Gradients are not clipped",
    "gradient_clipping is 0, and DeepSpeed clips nothing: a single bad batch may throw the weights "
    "away.",
    f"{_DOCS}#gradient-clipping",
    "",
    "gradient_clipping: 1.0, or auto under transformers.",
)
PROFILING = Check(
    "deepspeed-profiling-on",
    "info",
    "DeepSpeed measures in every step",
    "Timers of phases, of communication and of operations wait for the GPU or count each module: "
    "for a diagnosis, not for a long run.",
    f"{_DOCS}#logging and #flops-profiler",
    "",
    "Switch it off.",
)
CHECKPOINTING_IGNORED = Check(
    "deepspeed-checkpointing-ignored",
    "info",
    "Activation checkpointing that no model asks for",
    "This section configures deepspeed.checkpointing, which the model has to call. Models of "
    "transformers do not: with `auto` values, which its Trainer fills in, activations are neither "
    "partitioned nor laid out in one buffer.",
    "https://deepspeed.readthedocs.io/en/latest/activation-checkpointing.html; "
    "torch.utils.checkpoint in transformers",
    "cpu_checkpointing reaches transformers since DeepSpeed 0.19",
    "gradient_checkpointing: true in the arguments of the training, and no such option.",
)
WEIGHTS_LEFT_SHARDED = Check(
    "deepspeed-weights-not-gathered",
    "info",
    "ZeRO-3 saves no model that can be loaded as it is",
    "Each rank holds a part of the weights. Unless they are gathered, save_16bit_model writes "
    "nothing, and get_state_dict of Accelerate raises an error, often after days.",
    "deepspeed/runtime/engine.py (save_16bit_model); accelerate/accelerator.py (get_state_dict)",
    "ZeRO stage 3",
    "stage3_gather_16bit_weights_on_model_save: true, or zero_to_fp32.py afterwards.",
)
OLD_SETTING = Check(
    "deepspeed-setting-deprecated",
    "info",
    "A setting that DeepSpeed has given up",
    "It is named deprecated in DeepSpeed's own configuration.",
    "deepspeed/runtime/zero/config.py",
    "",
    "Use the new name.",
)
CHECKS = (
    STATIC_SCALE, SCALE_FLOOR, TWO_PRECISIONS, BATCH_MISMATCH, CLIPPING_OFF, PROFILING,
    CHECKPOINTING_IGNORED, WEIGHTS_LEFT_SHARDED, OLD_SETTING,
)  # fmt: skip

_TYPICAL = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu"})
_RENAMED = {
    "cpu_offload": "offload_optimizer: {device: cpu}",
    "cpu_offload_params": "offload_param: {device: cpu}",
    "cpu_offload_param": "offload_param: {device: cpu}",
    "stage3_gather_fp16_weights_on_model_save": "stage3_gather_16bit_weights_on_model_save",
}
_SAVING = ("partition_activations", "contiguous_memory_optimization")
_PROFILERS = ("flops_profiler", "comms_logger")


@dataclass(frozen=True, slots=True)
class Section:
    """One mapping of the configuration."""

    document: Document
    node: yaml.MappingNode

    def option(self, name: str) -> Option | None:
        """A key with a plain value."""
        pairs = (pair for pair in scalars(self.node) if pair[0].value == name)
        return next((self.document.option(key, value) for key, value in pairs), None)

    def section(self, name: str) -> Section | None:
        """A key with a mapping."""
        found = (v for k, v in self.node.value if k.value == name)
        inner = next((v for v in found if isinstance(v, yaml.MappingNode)), None)
        return Section(self.document, inner) if inner is not None else None

    def enabled(self, *, certainly: bool = False) -> bool:
        """Whether `enabled` is true; `auto` may be."""
        option = self.option("enabled")
        return option is not None and bool(option.truth or (_auto(option) and not certainly))

    def values(self) -> Iterator[str]:
        """All plain values in it, at any depth."""
        for _, value in self.node.value:
            if isinstance(value, yaml.ScalarNode):
                yield str(value.value)
            elif isinstance(value, yaml.MappingNode):
                yield from Section(self.document, value).values()


def is_configuration(node: yaml.Node) -> TypeGuard[yaml.MappingNode]:
    """Whether a mapping is a configuration of DeepSpeed, by the keys that only that has."""
    if not isinstance(node, yaml.MappingNode):
        return False
    keys = (key for key, _ in node.value if isinstance(key, yaml.ScalarNode))
    return any(key.value in _TYPICAL for key in keys)


def judge(document: Document, node: yaml.MappingNode) -> Iterator[Finding]:
    """All findings in one configuration."""
    whole = Section(document, node)
    for rule in _RULES:
        yield from rule(whole)


def loss_scale(whole: Section) -> Iterator[Finding]:
    """A static scale, or a dynamic one without a floor."""
    half = whole.section("fp16")
    if half is None or not half.enabled():
        return
    scale = half.option("loss_scale")
    fixed = _number(scale) if scale is not None else None
    if scale is not None and fixed is not None and fixed > 0:
        yield scale.finding(STATIC_SCALE, "", scale.with_value("0"))
        return
    least = half.option("min_loss_scale")
    floor = _number(least) if least is not None else None
    if least is not None and floor is not None and floor <= 0:
        yield least.finding(SCALE_FLOOR, "", least.with_value("1"))


def precisions(whole: Section) -> Iterator[Finding]:
    """Two that exclude each other."""
    half = whole.section("fp16")
    brain = whole.section("bf16") or whole.section("bfloat16")
    if half and brain and half.enabled(certainly=True) and brain.enabled(certainly=True):
        option = brain.option("enabled")
        if option is not None:
            yield option.finding(TWO_PRECISIONS)


def batches(whole: Section) -> Iterator[Finding]:
    """A total that the product of the others does not divide."""
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    total, micro, steps = (whole.option(name) for name in names)
    if total is None or micro is None or not total.number or not micro.number:
        return
    product = micro.number * ((steps.number if steps is not None else None) or 1)
    if total.number % product:
        detail = f"{total.number} is no multiple of {product}"
        yield total.finding(BATCH_MISMATCH, detail)


def clipping(whole: Section) -> Iterator[Finding]:
    """Only where it is said, not where it is left out."""
    option = whole.option("gradient_clipping")
    if option is not None and _number(option) == 0:
        yield option.finding(CLIPPING_OFF)


def profiling(whole: Section) -> Iterator[Finding]:
    """What is there for a diagnosis."""
    options = [whole.option("wall_clock_breakdown")]
    for name in _PROFILERS:
        section = whole.section(name)
        options.append(section.option("enabled") if section else None)
    for option in options:
        if option is not None and option.truth:
            yield option.finding(PROFILING, "", _switched_off(option))


def checkpointing(whole: Section) -> Iterator[Finding]:
    """Under transformers, which is known by values that it alone fills in."""
    section = whole.section("activation_checkpointing")
    if section is None or "auto" not in whole.values():
        return
    wanted = [section.option(name) for name in _SAVING]
    for option in [option for option in wanted if option is not None and option.truth][:1]:
        yield option.finding(CHECKPOINTING_IGNORED, option.name)


def zero(whole: Section) -> Iterator[Finding]:
    """Old names, and weights that stay sharded."""
    section = whole.section("zero_optimization")
    if section is None:
        return
    for old, new in _RENAMED.items():
        option = section.option(old)
        if option is not None and option.truth is not None:
            yield option.finding(OLD_SETTING, f"{old} is now {new}")
    for name in ("stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save"):
        gathered, stage = section.option(name), section.option("stage")
        if gathered is not None and gathered.truth is False and stage and stage.number == 3:
            yield gathered.finding(WEIGHTS_LEFT_SHARDED)


def _auto(option: Option) -> bool:
    return option.value == "auto"


def _number(option: Option) -> float | None:
    try:
        return float(option.value or "")
    except ValueError:
        return None


def _switched_off(option: Option) -> Edit | None:
    return option.with_value("false") if option.value == "true" else None


_RULES: tuple[Callable[[Section], Iterator[Finding]], ...] = (
    loss_scale, precisions, batches, clipping, profiling, checkpointing, zero,
)  # fmt: skip
