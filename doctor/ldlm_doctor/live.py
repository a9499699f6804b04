"""The environment of a running process: its settings as they really are."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import re2

from ldlm_doctor import environment_rules, option_rules
from ldlm_doctor.bash_walk import read_script
from ldlm_doctor.errors import DoctorError
from ldlm_doctor.model import Clean, Findings, data
from ldlm_doctor.options import Group, of_command
from ldlm_doctor.setting import Environment, Release, Setting, Surroundings

_TORCH_LIBRARY = re2.compile(r"(?m)\s(/\S.*)/torch/lib/libtorch_(?:cpu|python)\.so")
_NO_FILES = Surroundings()
_VERSION = re2.compile(r"(?m)^__version__\s*=\s*['\"]([0-9]+)\.([0-9]+)")


@dataclass(frozen=True, slots=True)
class Process:
    """A process: its command line, its known settings, and the PyTorch that it has loaded."""

    pid: int
    arguments: tuple[str, ...]
    settings: tuple[Setting, ...]
    torch: Release | None
    cores: int

    @property
    def command(self) -> str:
        """The command line, in one line."""
        return " ".join(self.arguments)


def look_at(pid: int) -> Process:
    """Reads what the system shows of a process.

    The environment is the one that it was started with; what a program sets later, with
    os.environ, does not stand there. Raises `DoctorError` where there is no such process, or it
    belongs to somebody else.
    """
    folder = Path("/proc", str(pid))
    try:
        environ = (folder / "environ").read_bytes()
        command = (folder / "cmdline").read_bytes().decode(errors="replace")
        cores = len(os.sched_getaffinity(pid))
    except OSError as error:
        raise DoctorError(
            f"the environment of the process cannot be read ({error.strerror})",
            where=f"--live {pid}",
            remedy="give the id of a running process of yours, as ps shows it",
        ) from error
    settings = tuple(_settings(environ, f"/proc/{pid}/environ"))
    arguments = tuple(command.rstrip("\0").split("\0"))
    return Process(pid, arguments, settings, _torch(folder), cores)


def _settings(environ: bytes, path: str) -> Iterator[Setting]:
    for entry in environ.decode(errors="replace").split("\0"):
        name, separator, value = entry.partition("=")
        if separator:
            yield Setting(name, value, path, 1, entry)


def _torch(folder: Path) -> Release | None:
    """By the library that is mapped into its memory."""
    try:
        found = _TORCH_LIBRARY.search((folder / "maps").read_text(errors="replace"))
        if not found:
            return None
        text = (folder / f"root{found.group(1)}" / "torch" / "version.py").read_text()
    except OSError:
        return None
    version = _VERSION.search(text)
    return (int(version.group(1)), int(version.group(2))) if version else None


def known_settings(process: Process) -> list[Setting]:
    """Those that mean something to NCCL, PyTorch or the launcher, in the order of their names."""
    named = [s for s in process.settings if environment_rules.is_known(s.name)]
    return sorted(named, key=lambda setting: setting.name)


def defaults(process: Process) -> dict[str, str]:
    """What its PyTorch does where nothing is set; empty where the version is not known."""
    given = {setting.name for setting in process.settings}
    given |= {f"TORCH_{name}" for name in given}  # the old names count too
    torch, found = process.torch or (0, 0), {}
    for name, changes in data("defaults").items():
        releases = ((tuple(map(int, since.split("."))), value) for since, value in changes.items())
        values = [value for since, value in releases if since <= torch]
        if values and name not in given:
            found[name] = values[-1]
    return found


def described(process: Process, clean: Clean) -> Iterator[str]:
    """The process and its settings as text."""
    torch = ".".join(map(str, process.torch)) if process.torch else "not loaded"
    yield f"process {process.pid}: {clean(process.command)[:160]}"
    yield f"  PyTorch {torch}, {process.cores} cores; as it was started:"
    found = [f"  {clean(setting.evidence)}" for setting in known_settings(process)]
    yield from found or ["  no setting of NCCL or PyTorch"]
    yield from (f"  {name}={value} (default)" for name, value in defaults(process).items())
    yield ""


def as_json(process: Process, clean: Clean) -> dict[str, object]:
    """The process and its settings for programs."""
    return {
        "pid": process.pid,
        "command": clean(process.command),
        "torch": process.torch and ".".join(map(str, process.torch)),
        "cores": process.cores,
        "settings": {s.name: clean(s.value or "") for s in known_settings(process)},
        "defaults": defaults(process),
    }


def audit(process: Process, project: Surroundings = _NO_FILES) -> Findings:
    """What is wrong in its environment and its options; with PyTorch, also what would help later.

    `project`: the surroundings by the files that were named, too.
    """
    itself = Setting("", None, f"/proc/{process.pid}/environ", 1, process.command)
    environment = Environment(process.settings, itself if process.torch is not None else None)
    around = replace(project, torch=process.torch)
    yield from environment_rules.judge(environment, around)
    yield from option_rules.judge(_options(process))
    yield from environment_rules.advise(environment, around)


def _options(process: Process) -> Group:
    """Those of its command line; its workers have its cores."""
    path = f"/proc/{process.pid}/cmdline"
    script = read_script(shlex.join(process.arguments).replace("\n", " ").encode(), path)
    words = script.commands[0] if script.commands else None
    group = of_command(words, script) if words else Group(())
    return replace(group, cores=process.cores)
