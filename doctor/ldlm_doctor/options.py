"""Settings of a training, wherever they are written: a configuration file or a command's words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import re2

from ldlm_doctor.bash_script import Command, Script
from ldlm_doctor.bash_values import UNKNOWN, Value
from ldlm_doctor.setting import Setting

_FLAG = re2.compile(r"^(?:--?|\+{0,2})([A-Za-z][A-Za-z0-9_.-]*?)(?:=(.*))?$")
_OVERRIDE = re2.compile(r"^\+{0,2}[A-Za-z][A-Za-z0-9_.]*=")
_DIRECTIVE = re2.compile(r"(?m)^#SBATCH[ \t]+-{1,2}([a-zA-Z-]+)(?:[= \t]+([^\s#]+))?")
_PROCESSES = ("nproc_per_node", "num_gpus", "num_processes", "devices", "nproc")
_SHORT = {"N": "nodes", "n": "ntasks", "G": "gpus", "t": "time"}


@dataclass(frozen=True, slots=True)
class Group:
    """Settings that are given together.

    `processes` and `cores` are those of a node (None: not known); `all_names` are the names in
    the whole file. `launched`: a training is started with them.
    """

    options: tuple[Setting, ...]
    processes: int | None = None
    cores: int | None = None
    all_names: frozenset[str] = frozenset()
    launched: bool = False

    def of(self, *names: str) -> Iterator[Setting]:
        """The options of these names."""
        return (option for option in self.options if option.name in names)


def normalised(key: str) -> str:
    """`data.num-workers` is `num_workers`."""
    return key.rsplit(".", 1)[-1].replace("-", "_").lower()


def of_command(command: Command, script: Script) -> Group:
    """The options of a command: `--name value`, `--name=value`, `group.name=value`."""
    options = tuple(_options(command.words, script))
    slurm = slurm_options(script)
    tasks = count(slurm, "ntasks_per_node", "gpus_per_node")
    each = count(slurm, "cpus_per_task", "cpus_per_gpu", "c")
    cores = each * (tasks or 1) if each and "exclusive" not in slurm else None
    processes = next((o.number for o in options if o.name in _PROCESSES and o.number), None)
    names = frozenset(option.name for option in options)
    return Group(options, processes or tasks, cores, names, launched=True)


def _options(words: Sequence[Value], script: Script) -> Iterator[Setting]:
    for at, word in enumerate(words):
        found = _FLAG.match(word.text)
        if not found or not (word.text.startswith("-") or _OVERRIDE.match(word.text)):
            continue
        given, value_at = found.group(2), None
        if given is not None:
            value_at = _after_equals(script.content, word.start, word.end, str(given))
        elif at + 1 == len(words) or words[at + 1].text.startswith("-"):
            given = "true"
        else:
            given, start, end = words[at + 1].text, words[at + 1].start, words[at + 1].end
            value_at = (start, end) if end > start else None
        value = str(given) if UNKNOWN not in str(given) else None
        line, evidence = script.line_at(word.start), script.line_text(word.start)
        name = normalised(str(found.group(1)))
        yield Setting(name, value, script.path, line, evidence, value_at)


def _after_equals(content: bytes, start: int, end: int, value: str) -> tuple[int, int] | None:
    text = content[start:end]
    at = text.find(b"=") + 1
    if at and text[at:].strip(b"\"'") == value.encode():
        quoted = text[at : at + 1] in (b'"', b"'")
        return start + at + quoted, end - quoted
    return None


def slurm_options(script: Script) -> dict[str, str]:
    """The `#SBATCH` directives of a script."""
    return _directives(script.content)


@lru_cache(maxsize=2)
def _directives(content: bytes) -> dict[str, str]:
    found = _DIRECTIVE.findall(content.decode("latin-1"))
    return {normalised(_SHORT.get(name, name)): str(value or "") for name, value in found}


def count(slurm: dict[str, str], *names: str) -> int | None:
    """The number that the first of these directives ends in, as in `gpu:a100:8`."""
    for name in names:
        last = slurm.get(name, "").rsplit(":", 1)[-1]
        if last.isdigit():
            return int(last)
    return None
