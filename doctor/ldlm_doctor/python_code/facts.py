"""What one file of Python says of the program that it is a part of, by names alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache

from ldlm_doctor.model import data
from ldlm_doctor.python_code.expressions import keyword
from ldlm_doctor.python_code.module import Module

DDP = frozenset(
    f"torch.nn.parallel.{where}DistributedDataParallel" for where in ("", "distributed.")
)
FSDP = frozenset(f"torch.distributed.{name}" for name in data("names")["fsdp"])
INIT_PROCESS_GROUP = frozenset(
    f"torch.distributed.{where}init_process_group" for where in ("", "distributed_c10d.")
)
SEVERAL_RANKS = DDP | FSDP | INIT_PROCESS_GROUP
PRINTS = {"print", "debug", "info", "warning", "error"}
_FRAMEWORKS = frozenset(data("names")["frameworks"])
_TRAINERS = frozenset(
    {"transformers.Trainer", "transformers.Seq2SeqTrainer", "transformers.TrainingArguments"}
)


@cache
def calling(names: frozenset[str]) -> Callable[[Module], bool]:
    """The fact that a module calls one of these dotted names."""
    return lambda module: any(True for _ in module.calls_to(names))


def starts_ranks(module: Module) -> bool:
    """The module is wrapped for ranks or starts them, and not for a single one."""
    calls = list(module.calls_to(SEVERAL_RANKS))
    return bool(calls) and not any(
        getattr(keyword(call, "world_size"), "value", 0) == 1 for call in calls
    )


@cache
def naming(*words: str) -> Callable[[Module], bool]:
    """The fact that one of these words stands in a module, as an identifier or in a string."""
    return lambda module: not module.words.isdisjoint(words)


@cache
def matching(pattern: re.Pattern[str]) -> Callable[[Module], bool]:
    """The fact that a pattern matches a word of a module."""
    return lambda module: any(map(pattern.search, module.words))


def uses_framework(module: Module) -> bool:
    """A framework that trains by itself is imported."""
    imported = {name.partition(".")[0] for level, name in module.imported if level == 0}
    return bool(imported & _FRAMEWORKS) or not _TRAINERS.isdisjoint(module.imports.values())


def accelerates(module: Module) -> bool:
    """Accelerate gives each rank its batches, and leaves random numbers as they are seeded."""
    return "prepare" in module.methods_called and any(
        name.startswith("accelerate") for _, name in module.imported
    )


def forwards(module: Module) -> Iterator[ast.FunctionDef]:
    """The `forward` of each class."""
    for cls in module.each(ast.ClassDef):
        for statement in cls.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == "forward":
                yield statement
