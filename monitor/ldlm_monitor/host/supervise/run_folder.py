"""The folders of supervised runs: `$XDG_STATE_HOME/ldlm-monitor/runs/NAME_TIME/`, one a run.

`run.json` is what a run was started with, `monitor.log` what its monitor printed, `report.txt` how
it ended, `state/` what its monitor keeps; a bench has `record.json`. The command's output is a log
beside the others of the user's, in the working folder.
"""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from ldlm_monitor.base.errors import InputError, UsageError
from ldlm_monitor.base.incident_view import View
from ldlm_monitor.base.text.state_home import state_home
from ldlm_monitor.host.probe import process

SCHEMA: Final = "ldlm.run/1"  # the number rises with an incompatible change
RECORD = "run.json"
JOBS = "job_*.out"  # links to the outputs of Slurm jobs that the command submitted
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}")
"""A run's name, part of file names: up to 80 characters that no shell must quote."""
_LAUNCHERS = frozenset(
    "accelerate bash deepspeed env mpirun nice nohup python python3 sbatch sh srun torchrun".split()  # noqa: SIM905
)
"""Commands that start another: a run is called after the script that they are given."""


class RunSurroundings(View):
    """What a run was started in; secrets are redacted. None or empty: unknown.

    `git_diff` is the working tree's difference from `git_commit`, bounded.
    """

    host: str
    environment: dict[str, str] = Field(default={})
    git_commit: str | None = None
    git_diff: str | None = None
    python: str | None = None
    packages: dict[str, str] = Field(default={}, description="version by name")
    gpus: tuple[str, ...] = ()


class RunRecord(View):
    """A supervised run. `relay` and `relay_started` (ticks after boot) are its relay's process."""

    schema_: Literal["ldlm.run/1"] = Field(default=SCHEMA, alias="schema")
    name: str = Field(description="NAME_TIME: the folder's name, and the log's")
    command: tuple[str, ...] = Field(description="secrets are redacted")
    directory: str
    log: str
    started_at: float = Field(description="Unix seconds")
    relay: int = 0
    relay_started: int = 0
    exit_code: int | None = None
    ended_at: float | None = None
    surroundings: RunSurroundings | None = None

    @property
    def is_running(self) -> bool:
        """Whether its relay is alive on this host."""
        found = process.look(self.relay)
        return found is not None and found.started == self.relay_started and found.state not in "ZX"

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return runs_dir() / self.name

    @property
    def files(self) -> tuple[str, ...]:
        """Its log's files, the oldest first, and the outputs of jobs that it submitted."""
        log, jobs = Path(self.log), sorted(self.folder.glob(JOBS))
        full = [path for path in log.parent.glob(f"{log.name}.*") if path.suffix[1:].isdigit()]
        full.sort(key=lambda path: int(path.suffix[1:]))
        return (*map(str, full), self.log, *map(str, jobs))


def runs_dir() -> Path:
    """Where the folders of all runs are."""
    return state_home() / "runs"


def name_of(command: tuple[str, ...]) -> str:
    """A name for a command: its script's, without folder and ending; otherwise its program's."""
    scripts = (word for word in command if Path(word).suffix in (".py", ".sh", ".sbatch", ".slurm"))
    programs = (word for word in command if word[:1] != "-" and Path(word).name not in _LAUNCHERS)
    word = next(scripts, None) or next(programs, command[0])
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", Path(word).stem).strip("_.-+")[:60] or "run"


def new_folder(name: str, now: float) -> Path:
    """Make the folder of a run `name` that starts at `now` (Unix seconds). Raises `UsageError`."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            "is no name for a run",
            where=name,
            remedy="use letters, digits and . _ + -, beginning with a letter or digit",
        )
    stamp = time.strftime("%Y%m%d_%H%M%S", time.localtime(now))
    for more in ("", *(f"_{number}" for number in range(2, 100))):
        folder = runs_dir() / f"{name}_{stamp}{more}"
        try:
            folder.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(
                f"cannot be made ({error.strerror})",
                where=str(folder),
                remedy="set XDG_STATE_HOME to a folder that you may write to",
            ) from error
        return folder
    raise UsageError("100 runs of this name start at once", where=name, remedy="wait a second")


def new_log(folder: Path, name: str) -> Path:
    """Make the log of a run in `folder`. Raises `UsageError`."""
    log = folder.absolute() / f"{name}.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log.touch(exist_ok=False)
    except OSError as error:
        raise UsageError(
            f"cannot be made ({error.strerror})",
            where=str(folder / log.name),
            remedy="name a folder that you may write to with --log-dir",
        ) from error
    return log


def keep(record: RunRecord, **changes: Any) -> RunRecord:
    """Write a run's record, with `changes` to what is kept, atomically; returns it."""
    record = (find_run(record.name) or record).model_copy(update=changes)
    path = record.folder / RECORD
    fresh = path.with_name(f".{RECORD}.{os.getpid()}")
    fresh.touch(mode=0o600)
    fresh.write_text(record.model_dump_json() + "\n", encoding="utf-8")
    fresh.replace(path)
    return record


def all_runs() -> Iterator[RunRecord]:
    """The runs that are kept, the newest first."""
    found = (_read(path) for path in runs_dir().glob(f"*/{RECORD}"))
    yield from sorted(found, key=lambda record: -record.started_at)


def find_run(name: str) -> RunRecord | None:
    """The run of this name, or the newest of it (`train` for `train_20260129_101500`)."""
    if not _NAME.fullmatch(name):
        return None
    exact = runs_dir() / name / RECORD
    if exact.is_file():
        return _read(exact)
    begun = re.compile(re.escape(name) + r"_\d{8}_\d{6}(_\d+)?")
    return next((each for each in all_runs() if begun.fullmatch(each.name)), None)


def _read(path: Path) -> RunRecord:
    try:
        return RunRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise InputError(
            "is no record of a run",
            where=str(path),
            remedy=f"remove the folder {path.parent}, which is damaged",
        ) from error
