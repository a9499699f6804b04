"""Judges DeepSpeed's configuration, a JSON file of its own or a part of a YAML file.

What the settings do is taken from DeepSpeed 0.19.8 and its documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

import yaml

from ldlm_doctor.model import Findings
from ldlm_doctor.setting import Setting
from ldlm_doctor.yaml_nodes import Document

_TYPICAL = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu"})
_ZERO = "zero_optimization"
_PROFILERS = ("wall_clock_breakdown", "flops_profiler.enabled", "comms_logger.enabled")
_RENAMED = {
    "cpu_offload": "offload_optimizer: {device: cpu}",
    "cpu_offload_params": "offload_param: {device: cpu}",
    "cpu_offload_param": "offload_param: {device: cpu}",
    "stage3_gather_fp16_weights_on_model_save": "stage3_gather_16bit_weights_on_model_save",
}
_GATHERED = ("stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save")


def is_configuration(node: yaml.Node) -> TypeGuard[yaml.MappingNode]:
    """Whether a mapping is a configuration of DeepSpeed, by the keys that only that has."""
    if not isinstance(node, yaml.MappingNode):
        return False
    keys = (key for key, _ in node.value if isinstance(key, yaml.ScalarNode))
    return any(key.value in _TYPICAL for key in keys)


def judge(document: Document, node: yaml.MappingNode) -> Findings:
    """All findings in one configuration."""
    options = dict(_options(document, node))
    clipping = options.get("gradient_clipping")
    if clipping is not None and clipping.amount == 0:
        yield clipping.finding("deepspeed-clipping-off")
    for option in (options[name] for name in _PROFILERS if name in options):
        if option.truth:
            edit = option.with_value("false") if option.value == "true" else None
            yield option.finding("deepspeed-profiling-on", "", edit)
    for old, new in _RENAMED.items():
        given = options.get(f"{_ZERO}.{old}")
        if given is not None and given.truth is not None:
            yield given.finding("deepspeed-setting-deprecated", f"{old} is now {new}")
    stage = options.get(f"{_ZERO}.stage")
    for name in _GATHERED if stage is not None and stage.number == 3 else ():
        given = options.get(f"{_ZERO}.{name}")
        if given is not None and given.truth is False:
            yield given.finding("deepspeed-weights-not-gathered")


def _options(document: Document, node: yaml.MappingNode) -> Iterator[tuple[str, Setting]]:
    """The plain values of the configuration and of its sections, by `section.key`."""
    for name, value in node.value:
        if isinstance(name, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode):
            yield str(name.value), document.option(name, value)
        elif isinstance(name, yaml.ScalarNode) and isinstance(value, yaml.MappingNode):
            inner = _options(document, value)
            yield from ((f"{name.value}.{key}", option) for key, option in inner)
