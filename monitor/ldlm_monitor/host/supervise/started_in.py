"""What a run was started in: environment, git, the interpreter's packages, GPUs."""

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ldlm_monitor.base.text.sanitize import plain, redact
from ldlm_monitor.base.text.secrets import REDACTED
from ldlm_monitor.host.supervise.run_folder import RunRecord, RunSurroundings, keep

ASK_SECONDS = 10.0
"""Seconds for each program: a diff on a network disk takes some, a driver may never answer."""
DIFF_CHARACTERS = 1_000_000
"""Characters kept of a diff: a choice, more than any change that a person made by hand."""
_VALUE = 4000  # characters of one variable: LS_COLORS has 1,500
_HARMLESS = re.compile(
    # Of a shell, Python and its environments,
    r"(?:LD_LIBRARY_|PYTHON|OLD)?PATH|(?:OLD)?PWD|HOME|USER|LOGNAME|SHELL|SHLVL|TERM|TZ|LANG|LC_\w+"
    r"|HOSTNAME|TMPDIR|CC|CXX|LD_PRELOAD|XDG_\w+_(?:HOME|DIR)|VIRTUAL_ENV|PYTHON(?:HASHSEED|UNBUFFERED"
    r"|FAULTHANDLER)|CONDA_(?:PREFIX|DEFAULT_ENV)"
    # of launchers and schedulers,
    r"|(?:LOCAL_|GROUP_|NODE_|ROLE_)?RANK|(?:LOCAL_|ROLE_)?WORLD_SIZE|MASTER_(?:ADDR|PORT)"
    r"|(?:SLURM|SLURMD|PBS|LSB|OMPI|PMI|PMIX|TORCHELASTIC|ACCELERATE|DEEPSPEED|FSDP)_\w+"
    r"|LDLM_(?:RUN|ATTEMPT|EXCLUDE_NODES|RESUME_STEP|SKIP_STEPS)"
    # of what computes and communicates,
    r"|(?:CUDA|CUBLAS|CUDNN|NVIDIA|NCCL|RCCL|HIP|HSA|ROCR|GLOO|UCX|FI|MLX5|NVTE|TORCH|TORCHINDUCTOR"
    r"|PYTORCH|TORCHDYNAMO|TRITON|XLA|JAX|TF|TPU|OMP|MKL|KMP|OPENBLAS|NUMEXPR|MALLOC)_\w+"
    # and of what says where a run belongs.
    r"|TOKENIZERS_PARALLELISM|(?:HF|TRANSFORMERS)_(?:HOME|HUB_OFFLINE|DATASETS_\w+|OFFLINE|CACHE)"
    r"|WANDB_(?:MODE|PROJECT|ENTITY|NAME|RUN_ID|RUN_GROUP|DIR)"
)
"""Variables whose values say how a run computes and hold no secret: of all others the name alone
is kept. A value still passes the redactor."""
_PACKAGES = (
    "import importlib.metadata as m, json, sys;"
    "print(json.dumps([sys.version.split()[0],"
    " {d.metadata['Name']: d.version for d in m.distributions() if d.metadata['Name']}]))"
)


def describe(record: RunRecord) -> None:
    """Add what it was started in to a run's record."""
    keep(record, surroundings=look(record.command, Path(record.directory), os.environ))


def look(
    command: Sequence[str], directory: Path, environment: Mapping[str, str]
) -> RunSurroundings:
    """Ask git, the command's Python and nvidia-smi; what does not answer in time is unknown."""
    python, packages = _packages(command, directory)
    commit = _asked(["git", "rev-parse", "HEAD"], directory)
    diff = _asked(["git", "diff", "HEAD"], directory) if commit else None
    return RunSurroundings(
        host=socket.gethostname(),
        environment={
            name: _shown(name, text) if _HARMLESS.fullmatch(name) else REDACTED
            for name, text in sorted(environment.items())
        },
        git_commit=commit.strip() if commit else None,
        git_diff=redact(diff[:DIFF_CHARACTERS]) if diff else None,
        python=python,
        packages=packages,
        gpus=tuple(
            plain(line) for line in (_asked(["nvidia-smi", "-L"], directory) or "").splitlines()
        ),
    )


def _shown(name: str, text: str) -> str:
    """A variable's value; redacted as in a log line `NAME=value`, which shows what is a secret."""
    line = plain(f"{name}={text}", _VALUE)
    return line.removeprefix(f"{name}=")


def _packages(command: Sequence[str], directory: Path) -> tuple[str | None, dict[str, str]]:
    """Python's version and packages, by the command's interpreter, or the first one on the path."""
    first = Path(shutil.which(command[0]) or command[0])
    beside = first.parent / "python"  # of torchrun, accelerate and others in an environment
    is_python = first.name.startswith("python")
    python = str(first) if is_python else str(beside) if beside.exists() else "python3"
    answer = _asked([python, "-c", _PACKAGES], directory)
    try:
        version, packages = json.loads(answer or "")
        return str(version), {str(name): str(text) for name, text in packages.items()}
    except (ValueError, TypeError, AttributeError):
        return None, {}


def _asked(command: list[str], directory: Path) -> str | None:
    try:
        answer = subprocess.run(
            command,
            cwd=directory,
            env=os.environ | {"GIT_OPTIONAL_LOCKS": "0"},  # git writes no index while others work
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.decode("utf-8", "replace") if answer.returncode == 0 else None
