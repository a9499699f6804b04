"""Slurm: the jobs that a run's command submits, and how a job starts again without a node."""

import contextlib
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ldlm_monitor.base.snapshot import Snapshot

ASK_SECONDS = 10.0  # for scontrol: its controller answers in one, or restarts. A choice
UPDATE_TRIES = 20
"""Tries to exclude nodes, a second apart, since a job that was requeued takes no change until its
processes have ended: of the 30 s after which Slurm kills them (`KillWait`), and us with them."""
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_SUBMITTED = re.compile(rb"^Submitted batch job (\d{1,12})\b", re.MULTILINE)
_OUTPUT = re.compile(r"\bStdOut=(\S+)")


def nodes_of(text: str) -> list[str]:
    """The nodes of `LDLM_EXCLUDE_NODES` by their short names, as Slurm calls them; no addresses."""
    names = (name.partition(".")[0] for name in text.split(","))
    kept = (name for name in names if _NODE.fullmatch(name) and not name.isdigit())
    return [*dict.fromkeys(kept)]


def job_of(environment: Mapping[str, str]) -> str | None:
    """The job in which we run (`12_3` in an array); None outside of one."""
    task = environment.get("SLURM_ARRAY_TASK_ID")
    array = f"{environment.get('SLURM_ARRAY_JOB_ID')}_{task}" if task else None
    job = array or environment.get("SLURM_JOB_ID", "")
    return job if re.fullmatch(r"\d{1,12}(_\d{1,12})?", job) else None


def requeued(job: str, nodes: Sequence[str]) -> str:
    """A shell's line that starts `job` again, without `nodes`.

    A job's nodes can be excluded only while it waits, so it is held until then; and it is
    released in any case.
    """
    if not nodes:
        return f"scontrol requeue {job}"
    update = f"scontrol update JobId={job} ExcNodeList={','.join(nodes)}"
    tries = f"for i in $(seq {UPDATE_TRIES}); do {update} && break; sleep 1; done"
    return f"scontrol requeuehold {job} && {{ {tries}; scontrol release {job}; }}"


def submits(command: Sequence[str]) -> bool:
    """Whether the command hands a job in, so that its processes are elsewhere."""
    return Path(command[0]).name == "sbatch"


def without(command: Sequence[str], nodes: Sequence[str]) -> tuple[str, ...]:
    """An `sbatch` command that leaves `nodes` out, besides those that it leaves out already."""
    program, *words = command
    script = next((at for at, word in enumerate(words) if Path(word).is_file()), len(words))
    excluded, kept, options = [*nodes], list[str](), iter(words[:script])
    for word in options:
        if word in ("-x", "--exclude"):
            excluded.append(next(options, ""))
        elif word.startswith("--exclude="):
            excluded.append(word.partition("=")[2])
        else:
            kept.append(word)
    together = ",".join(dict.fromkeys(filter(None, excluded)))
    return (program, f"--exclude={together}", *kept, *words[script:])


def advice(command: Sequence[str], job: str | None, nodes: Sequence[str]) -> str:
    """What a person would type to start again without `nodes`; "" if that is not Slurm's."""
    if submits(command):
        return shlex.join(without(command, nodes)) if nodes else ""
    return requeued(job, nodes) if job else ""


def do(line: str) -> None:
    """Run a line of `requeued` to its end, although requeuing sends SIGTERM to all of this job.

    Slurm kills what is left of a job when its script ends, which waits for us.
    """
    with contextlib.suppress(OSError):
        subprocess.run(
            ["sh", "-c", f"trap '' TERM HUP; {line}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )


class SubmittedJobs:
    """Links the output of each job that a command hands in into the run's folder, to be followed.

    `log`: what the command printed. The links are `job_NUMBER.out` in `folder`.
    """

    def __init__(self, log: Path, folder: Path, directory: Path) -> None:
        self._log, self._folder, self._directory = log, folder, directory
        self._read = 0
        self._newest: Path | None = None

    def look(self) -> None:
        """Search what the command printed since the last look."""
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(self._read)
            text = log.read(1_000_000)  # bytes: the rest at the next look
            self._read += text.rfind(b"\n") + 1
            for found in _SUBMITTED.finditer(text):
                job = found[1].decode()
                self._newest = self._folder / f"job_{job}.out"
                with contextlib.suppress(FileExistsError):  # the job was named twice
                    self._newest.symlink_to(self._output(job))

    def are_read(self, snapshot: Snapshot) -> bool:
        """Whether the newest job's output is among the files of a run."""
        newest = self._newest
        return newest is None or any(str(newest) in run.files for run in snapshot.runs)

    def _output(self, job: str) -> Path:
        """Where the job writes: as Slurm says, otherwise sbatch's default."""
        try:
            said = subprocess.run(
                ["scontrol", "show", "job", job, "--oneliner"],
                capture_output=True,
                timeout=ASK_SECONDS,
                check=False,
                text=True,
            ).stdout
        except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
            said = ""
        found = _OUTPUT.search(said)
        return self._directory / (found[1] if found else f"slurm-{job}.out")
