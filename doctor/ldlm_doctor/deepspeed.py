"""Judges DeepSpeed's configuration, a JSON file of its own or a part of a YAML file.

What the settings do is taken from DeepSpeed 0.19.8 and its documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeGuard

import yaml

from ldlm_doctor.model import Findings
from ldlm_doctor.setting import Setting
from ldlm_doctor.yaml_nodes import Document, scalars

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

    def option(self, name: str) -> Setting | None:
        """A key with a plain value."""
        pairs = (pair for pair in scalars(self.node) if pair[0].value == name)
        return next((self.document.option(key, value) for key, value in pairs), None)

    def section(self, name: str) -> Section | None:
        """A key with a mapping."""
        found = (v for k, v in self.node.value if k.value == name)
        inner = next((v for v in found if isinstance(v, yaml.MappingNode)), None)
        return Section(self.document, inner) if inner is not None else None

    def enabled(self) -> bool:
        """Whether `enabled` is true; `auto` may be."""
        option = self.option("enabled")
        return option is not None and bool(option.truth or option.value == "auto")

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


def judge(document: Document, node: yaml.MappingNode) -> Findings:
    """All findings in one configuration."""
    whole = Section(document, node)
    for rule in _RULES:
        yield from rule(whole)


def loss_scale(whole: Section) -> Findings:
    """A static scale, or a dynamic one without a floor."""
    half = whole.section("fp16")
    if half is None or not half.enabled():
        return
    scale = half.option("loss_scale")
    if scale is not None and (scale.amount or 0) > 0:
        yield scale.finding("deepspeed-static-loss-scale", "", scale.with_value("0"))
        return
    least = half.option("min_loss_scale")
    if least is not None and least.amount is not None and least.amount <= 0:
        yield least.finding("deepspeed-loss-scale-floor", "", least.with_value("1"))


def clipping(whole: Section) -> Findings:
    """Only where it is said, not where it is left out."""
    option = whole.option("gradient_clipping")
    if option is not None and option.amount == 0:
        yield option.finding("deepspeed-clipping-off")


def profiling(whole: Section) -> Findings:
    """What is there for a diagnosis."""
    options = [whole.option("wall_clock_breakdown")]
    for name in _PROFILERS:
        section = whole.section(name)
        options.append(section.option("enabled") if section else None)
    for option in options:
        if option is not None and option.truth:
            yield option.finding(
                "deepspeed-profiling-on",
                "",
                option.with_value("false") if option.value == "true" else None,
            )


def checkpointing(whole: Section) -> Findings:
    """Under transformers, which is known by values that it alone fills in."""
    section = whole.section("activation_checkpointing")
    if section is None or "auto" not in whole.values():
        return
    options = [section.option(name) for name in _SAVING]
    for option in [option for option in options if option is not None and option.truth][:1]:
        yield option.finding("deepspeed-checkpointing-ignored", option.name)


def zero(whole: Section) -> Findings:
    """Old names, and weights that stay sharded."""
    section = whole.section("zero_optimization")
    if section is None:
        return
    for old, new in _RENAMED.items():
        option = section.option(old)
        if option is not None and option.truth is not None:
            yield option.finding("deepspeed-setting-deprecated", f"{old} is now {new}")
    for name in ("stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save"):
        gathered, stage = section.option(name), section.option("stage")
        if gathered is not None and gathered.truth is False and stage and stage.number == 3:
            yield gathered.finding("deepspeed-weights-not-gathered")


_RULES: tuple[Callable[[Section], Findings], ...] = (
    loss_scale, clipping, profiling, checkpointing, zero,
)  # fmt: skip
