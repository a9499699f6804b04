"""Random numbers that a resume does not go on with."""

from __future__ import annotations

import ast
import re

from ldlm_doctor.model import Findings, data, pattern
from ldlm_doctor.python_code.facts import naming, uses_framework
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program

_SAVED = frozenset(data("names")["random_states"])
_DRAWS = re.compile(pattern("draws_of_others"), re.I)
_KEPT = {"random": "random.getstate", "numpy": "numpy.random.get_state"}
_KEEP_ALL = naming("save_state", "TrainingArguments", "Seq2SeqTrainingArguments")
"""Accelerate and the Trainer of transformers keep every generator themselves."""


def inspect(module: Module, program: Program) -> Findings:
    """A checkpoint with torch's generator, of a program that draws from others too."""
    kept = [call for call in module.calls_to(_SAVED) if not _is_put_back(module, call)]
    if not kept or not program.trains(module) or program.any_relative(_KEEP_ALL, module):
        return
    near = program.near(module)
    trained = [each for each in near if program.loops(each) or uses_framework(each)]
    parts = {part for each in trained for part in program.imports_of(each)}
    used = sorted(parts, key=lambda each: each.file.path)
    for name, state in _KEPT.items():
        if any(True for each in (*used, *near) for _ in each.calls_to(frozenset({state}))):
            continue
        drawn = (place for each in used if (place := _first_draw(each, name)))
        if place := next(drawn, ""):
            detail = f"{place} draws from that of {name.replace('numpy', 'NumPy')}"
            yield module.finding("resume-random-anew", kept[0], detail)
            return


def _is_put_back(module: Module, call: ast.Call) -> bool:
    """The state serves the function itself, as where activations are computed again."""
    function = module.function(call)
    return any(
        module.function(other) is function
        for other in module.called("set_rng_state", "set_rng_state_all")
    )


def _first_draw(module: Module, library: str) -> str:
    for call in module.calls:
        dotted = module.resolve(call.func)
        if dotted.startswith(library) and _DRAWS.match(dotted):
            return f"{module.file.path}:{call.lineno}"
    return ""
