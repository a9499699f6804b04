"""Random numbers that a resume does not go on with."""

from __future__ import annotations

import ast
import re

from ldlm_doctor.model import Findings
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program

_SAVED = frozenset({"torch.get_rng_state", "torch.random.get_rng_state"})
_DRAWS = re.compile(
    r"^(random\.(random|randint|randrange|uniform|choices?|sample|shuffle|gauss|normalvariate)"
    r"|numpy\.random\.(rand|randn|random|randint|uniform|normal|choice|shuffle|permutation|beta))$"
)
_KEPT = {
    "random": frozenset({"random.getstate"}),
    "numpy": frozenset({"numpy.random.get_state"}),
}


def inspect(module: Module, program: Program) -> Findings:
    """A checkpoint with torch's generator, of a program that draws from others too."""
    places = [
        call for call in module.calls_to(_SAVED) if module.around(call, ast.Dict, ast.keyword)
    ]
    if not places or not program.has_loops(module) or program.framework_does_it(module):
        return
    trained = [each for each in program.near(module) if program.loops(each)]
    parts = {part for each in trained for part in program.imports_of(each)}
    used = sorted(parts, key=lambda each: each.file.path)
    for name, kept in _KEPT.items():
        if any(True for each in used for _ in each.calls_to(kept)):
            continue
        drawn = (place for each in used if (place := _first_draw(each, name)))
        if place := next(drawn, ""):
            detail = f"{place} draws from that of {name.replace('numpy', 'NumPy')}"
            yield module.finding("resume-random-anew", places[0], detail)
            return


def _first_draw(module: Module, library: str) -> str:
    for call in module.calls:
        dotted = module.resolve(call.func)
        if dotted.startswith(library) and _DRAWS.match(dotted):
            return f"{module.file.path}:{call.lineno}"
    return ""
