"""Resumes that cannot work, in programs that have some."""

from __future__ import annotations

import ast
import re

from ldlm_doctor.model import Findings, pattern
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.resume_chain import LOADERS, chain, dropped

_RESUME = re.compile(pattern("resumes"), re.I)


def inspect(module: Module, program: Program) -> Findings:
    """Each place where a file restores a checkpoint."""
    if not program.has_loops(module) or not program.any_relative(_resumes, module):
        return
    if program.framework_does_it(module):
        return
    for load in module.calls_to(LOADERS):
        if links := chain(program, module, load):
            yield module.finding("resume-cannot-work", load, "; ".join(links))
        elif lost := "; ".join(dropped(program, module, load)):
            yield module.finding("resume-drops-saved-state", load, lost)


def _resumes(module: Module) -> bool:
    """Names of the file are about resuming; names of keyword arguments do not count."""
    names = {
        *(node.id for node in module.each(ast.Name)),
        *(node.attr for node in module.each(ast.Attribute)),
        *(node.arg for node in module.each(ast.arg)),
        *(function.name for function in module.functions),
    }
    strings = (node.value for node in module.each(ast.Constant))
    return any(map(_RESUME.search, names)) or any(
        isinstance(text, str) and len(text) < 40 and _RESUME.match(text.lstrip("-"))
        for text in strings
    )
