"""The commands that start a training, and the options of a training wherever they are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import re2

from ldlm_doctor.bash_script import Command, Script
from ldlm_doctor.bash_values import UNKNOWN, Value
from ldlm_doctor.model import data, pattern
from ldlm_doctor.setting import Setting

_FLAG = re2.compile(r"^(?:--?|\+{0,2})([A-Za-z][A-Za-z0-9_.-]*?)(?:=(.*))?$")
_OVERRIDE = re2.compile(r"^\+{0,2}[A-Za-z][A-Za-z0-9_.]*=")
_DIRECTIVE = re2.compile(r"(?m)^#SBATCH[ \t]+-{1,2}([a-zA-Z-]+)(?:[= \t]+([^\s#]+))?")
_PROCESSES = ("nproc_per_node", "num_gpus", "num_processes", "devices", "nproc")
_SHORT = {"N": "nodes", "n": "ntasks", "G": "gpus", "t": "time"}
_NAMES = data("names")
_WRAPPERS = frozenset(_NAMES["wrappers"])
_STARTERS = _WRAPPERS.union(_NAMES["submitters"])
_DISTRIBUTED = frozenset(_NAMES["launchers"])
_SHELLS = frozenset({"sh", "bash", "zsh"})
_SEPARATORS = frozenset({";", "&&", "||", "|", "&", "|&"})
_COMMAND_FLAG = re2.compile(r"^-[a-z]*c$")
_PYTHON = re2.compile(r"^(?:python|pypy)[0-9.]*$")
_MODULES = re2.compile(pattern("modules"))
_TRAINING = re2.compile(pattern("trains"))
_NO_TRAINING = re2.compile(pattern("trains_not"))
_SCRIPT = re2.compile(r"\.(?:py|sh|bash|sbatch|slurm)$")


@dataclass(frozen=True, slots=True)
class Group:
    """Settings that are given together.

    `processes` and `cores` are those of a node (None: not known). `launched`: a training is
    started with them.
    """

    options: tuple[Setting, ...]
    processes: int | None = None
    cores: int | None = None
    launched: bool = False

    def of(self, *names: str) -> Iterator[Setting]:
        """The options of these names."""
        return (option for option in self.options if option.name in names)

    def on(self, *names: str) -> Iterator[Setting]:
        """The options of these names that are true."""
        return (option for option in self.of(*names) if option.truth)


def normalised(key: str) -> str:
    """`data.num-workers` is `num_workers`."""
    return key.rsplit(".", 1)[-1].replace("-", "_").lower()


def of_command(command: Command, script: Script) -> Group:
    """The options of a command: `--name value`, `--name=value`, `group.name=value`."""
    options = tuple(_options(command.words, script))
    slurm = slurm_options(script.content)
    tasks = count(slurm, "ntasks_per_node", "gpus_per_node")
    each = count(slurm, "cpus_per_task", "cpus_per_gpu", "c")
    cores = each * (tasks or 1) if each and "exclusive" not in slurm else None
    processes = next((o.number for o in options if o.name in _PROCESSES and o.number), None)
    return Group(options, processes or tasks, cores, launched=True)


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
        name = normalised(str(found.group(1)))
        yield replace(script.setting(word.start, name, str(given)), value_at=value_at)


def _after_equals(content: bytes, start: int, end: int, value: str) -> tuple[int, int] | None:
    text = content[start:end]
    at = text.find(b"=") + 1
    if at and text[at:].strip(b"\"'") == value.encode():
        quoted = text[at : at + 1] in (b'"', b"'")
        return start + at + quoted, end - quoted
    return None


@lru_cache(maxsize=2)
def slurm_options(content: bytes) -> dict[str, str]:
    """The `#SBATCH` directives of a script."""
    found = _DIRECTIVE.findall(content.decode("latin-1"))
    return {normalised(_SHORT.get(name, name)): str(value or "") for name, value in found}


def count(slurm: dict[str, str], *names: str) -> int | None:
    """The number that the first of these directives ends in, as in `gpu:a100:8`."""
    for name in names:
        last = slurm.get(name, "").rsplit(":", 1)[-1]
        if last.isdigit():
            return int(last)
    return None


def wraps(text: str) -> bool:
    """Whether a command is there to start another one."""
    return text.rsplit("/", 1)[-1] in _STARTERS


def starts(text: str) -> bool:
    """Whether a word is the program that a wrapper starts."""
    name = text.rsplit("/", 1)[-1]
    return bool(name in _DISTRIBUTED or _PYTHON.match(name) or _SCRIPT.search(name))


def launches(texts: Sequence[str]) -> bool:
    """Whether a command starts a training: a launcher, or a script whose name says so."""
    return any(_launches(part) for part in _simple_commands(texts))


def _simple_commands(texts: Sequence[str]) -> Iterator[list[str]]:
    """The commands in the text that eval, or a shell by -c, is given; mostly there is one."""
    command: list[str] = []
    for text in texts:
        shell = any(word.rsplit("/", 1)[-1] in _SHELLS for word in command[:-1])
        if command == ["eval"] or (shell and _COMMAND_FLAG.match(command[-1])):
            yield command
            command = []
        if text in _SEPARATORS or text.endswith(";"):
            yield [*command, text.rstrip(";")] if text.strip(";&|") else command
            command = []
        else:
            command.append(text)
    yield command


def _launches(texts: Sequence[str]) -> bool:
    for at, text in enumerate(texts):
        name = text.rsplit("/", 1)[-1]
        rest = texts[at + 1 :]
        if name in _DISTRIBUTED or (rest and rest[0] in _NAMES["subcommands"].get(name, ())):
            return True
        if _PYTHON.match(name):
            return _trains(rest)
        if _SCRIPT.search(name):
            return _is_training(name.rsplit(".", 1)[0])
        if at == 0 and name not in _WRAPPERS and text != UNKNOWN:
            return False
    return False


def distributes(texts: Sequence[str]) -> bool:
    """Whether it starts several processes that talk to each other."""
    names = [text.rsplit("/", 1)[-1] for text in texts]
    started = _DISTRIBUTED.intersection(names) or any(bool(_MODULES.match(name)) for name in names)
    spread = {"srun", "mpirun", "mpiexec", "accelerate"} & set(names)
    return launches(texts) and bool(started or spread)


def _trains(arguments: Sequence[str]) -> bool:
    """What Python is given: the first word that is no flag is a script, or -m names a module."""
    words = iter(arguments)
    for word in words:
        if word == "-m":
            module = next(words, "")
            return bool(_MODULES.match(module)) or _is_training(module.replace(".", "/"))
        if word in ("-c", "-"):
            return False
        if word in ("-W", "-X"):
            next(words, None)
        elif not word.startswith("-"):
            return _is_training(word.rsplit("/", 1)[-1].removesuffix(".py"))
    return False


def _is_training(name: str) -> bool:
    return bool(_TRAINING.search(name)) and not _NO_TRAINING.search(name)
