"""Options of a training, wherever they are written: a configuration file or a command's words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import re2

from ldlm_doctor.bash_script import Command, Script
from ldlm_doctor.finding import Check, Edit, Finding

_FLAG = re2.compile(r"^(?:--?|\+{0,2})([A-Za-z][A-Za-z0-9_.-]*?)(?:=(.*))?$")
_OVERRIDE = re2.compile(r"^\+{0,2}[A-Za-z][A-Za-z0-9_.]*=")
_DIRECTIVE = re2.compile(r"(?m)^#SBATCH[ \t]+-{1,2}([a-zA-Z-]+)(?:[= \t]+([^\s#]+))?")
_SHORT = {"N": "nodes", "n": "ntasks", "G": "gpus", "t": "time"}


@dataclass(frozen=True, slots=True)
class Option:
    """A key and its value; `name` is the key's last part, in lower case with underscores.

    `value` is None where it is only known when it runs, `value_at` the bytes that spell it.
    """

    name: str
    value: str | None
    path: str
    line: int
    evidence: str
    value_at: tuple[int, int] | None = None

    def finding(self, check: Check, detail: str = "", edit: Edit | None = None) -> Finding:
        """What a check says of it."""
        edits = (edit,) if edit is not None else ()
        return Finding(check, self.path, self.line, self.evidence, detail, edits)

    def with_value(self, text: str) -> Edit | None:
        """Another value in its place."""
        return self.value_at and Edit(self.path, *self.value_at, text.encode())

    @property
    def number(self) -> int | None:
        """The value as a whole number, if it is one."""
        text = (self.value or "").strip().replace("_", "")
        return int(text) if text.lstrip("-").isdigit() and len(text) < 15 else None

    @property
    def truth(self) -> bool | None:
        """The value as a truth value, if it is one."""
        word = (self.value or "").strip().lower()
        return {"true": True, "yes": True, "on": True, "1": True,
                "false": False, "no": False, "off": False, "0": False}.get(word)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """Options that are given together.

    `processes` and `cores` are those of a node (None: not known); `all_names` are the names in
    the whole file. `launched`: a training is started with them.
    """

    options: tuple[Option, ...]
    processes: int | None = None
    cores: int | None = None
    all_names: frozenset[str] = frozenset()
    launched: bool = False

    def of(self, *names: str) -> Iterator[Option]:
        """The options of these names."""
        return (option for option in self.options if option.name in names)


def normalised(key: str) -> str:
    """`data.num-workers` is `num_workers`."""
    return key.rsplit(".", 1)[-1].replace("-", "_").lower()


def of_command(command: Command, script: Script, path: str) -> Group:
    """What a command is given: `--name value`, `--name=value`, `group.name=value`."""
    options = []
    words = command.words
    for at, word in enumerate(words):
        found = _FLAG.match(word.text)
        if not found or not (word.text.startswith("-") or _OVERRIDE.match(word.text)):
            continue
        key, given = str(found.group(1)), found.group(2)
        value_at = None
        if given is None:
            following = words[at + 1] if at + 1 < len(words) else None
            if following is None or following.text.startswith("-"):
                given = "true"
            else:
                given = following.text
                value_at = (
                    (following.start, following.end) if following.end > following.start else None
                )
        else:
            value_at = _after_equals(script.content, word.start, word.end, str(given))
        value = str(given) if "\0" not in str(given) else None
        line = script.line_at(word.start)
        evidence = script.line_text(word.start)
        options.append(Option(normalised(key), value, path, line, evidence, value_at))
    slurm = slurm_options(script)
    tasks = count(slurm, "ntasks_per_node", "gpus_per_node")
    each = count(slurm, "cpus_per_task", "cpus_per_gpu", "c")
    cores = each * (tasks or 1) if each and "exclusive" not in slurm else None
    processes = _processes(options) or tasks
    names = frozenset(option.name for option in options)
    return Group(tuple(options), processes, cores, names, launched=True)


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


def _processes(options: list[Option]) -> int | None:
    names = ("nproc_per_node", "num_gpus", "num_processes", "devices", "nproc")
    return next((o.number for o in options if o.name in names and o.number), None)
