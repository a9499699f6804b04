"""What a launch leaves unset that would help after a failure."""

from __future__ import annotations

from collections.abc import Iterator

from ldlm_doctor.finding import Check, Finding
from ldlm_doctor.setting import Environment, Surroundings

_TORCH_DOCS = "https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html"
_NCCL_DOCS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"


ERROR_HANDLING_UNSET = Check(
    "advice-async-error-handling",
    "info",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING is left to the launcher",
    "PyTorch's default is 3, torchrun sets 1: `srun python` and `torchrun` end a failed collective "
    "differently.",
    "torch/distributed/run.py; ProcessGroupNCCL.hpp",
    "PyTorch 2.2 (up to 2.1 under the name NCCL_ASYNC_ERROR_HANDLING)",
    "Set it, to 3 or to 1.",
)
NCCL_SILENT = Check(
    "advice-nccl-debug",
    "info",
    "NCCL_DEBUG is not set",
    "NCCL then prints nothing, not even its warnings: which link or peer failed is not told.",
    _NCCL_DOCS,
    "",
    "export NCCL_DEBUG=WARN; since NCCL 2.26 NCCL_DEBUG_TIMESTAMP_LEVELS puts times before the "
    "lines.",
)
INTERFACE_UNSET = Check(
    "advice-socket-interface",
    "info",
    "NCCL_SOCKET_IFNAME is not set, for several nodes",
    "Where nodes have several networks, or docker0, ranks may choose one that does not reach the "
    "others.",
    _NCCL_DOCS,
    "",
    "export NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME.",
)
LOG_LEVEL_UNSET = Check(
    "advice-torch-log-level",
    "info",
    "TORCH_CPP_LOG_LEVEL is not set",
    "The lines with the settings that are in force, and those of the heartbeat, are not shown.",
    "c10/util/Logging.cpp",
    "",
    "export TORCH_CPP_LOG_LEVEL=INFO for a first run.",
)
ERROR_FILE_UNSET = Check(
    "advice-record",
    "info",
    "torchrun does not get to know the exception",
    "Without @record around main, the table of failures shows `error_file: <N/A>` and no message.",
    "https://docs.pytorch.org/docs/stable/elastic/errors.html",
    "PyTorch 1.9",
    "from torch.distributed.elastic.multiprocessing.errors import record, and @record before main.",
)
RAY_DEDUPLICATES = Check(
    "advice-ray-dedup",
    "info",
    "Ray hides the same line of other ranks",
    "RAY_DEDUP_LOGS is 1 by default: what several ranks write stands in the log once.",
    "https://docs.ray.io/en/latest/ray-observability/user-guides/configure-logging.html",
    "",
    "export RAY_DEDUP_LOGS=0",
)
FAULTHANDLER_UNSET = Check(
    "advice-faulthandler",
    "info",
    "PYTHONFAULTHANDLER is not set",
    "A segmentation fault or an abort then leaves no Python stack.",
    "https://docs.python.org/3/using/cmdline.html#envvar-PYTHONFAULTHANDLER",
    "",
    "export PYTHONFAULTHANDLER=1",
)
BUFFERED = Check(
    "advice-unbuffered",
    "info",
    "PYTHONUNBUFFERED is not set",
    "Into a file or a pipe Python writes by blocks: the last lines before a SIGKILL are lost, "
    "and a "
    "monitor sees silence.",
    "https://docs.python.org/3/using/cmdline.html#envvar-PYTHONUNBUFFERED",
    "",
    "export PYTHONUNBUFFERED=1",
)
PIPE_UNSET = Check(
    "advice-dump-pipe",
    "info",
    "No pipe to ask for a flight record",
    "With TORCH_NCCL_DEBUG_INFO_PIPE_FILE set, a byte written to the pipe of a rank dumps its "
    "record "
    "without ending the job.",
    _TORCH_DOCS,
    "PyTorch 2.3; set TORCH_NCCL_TRACE_BUFFER_SIZE too up to 2.11",
    "export TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/nccl_dump_",
)
CHECKS = (
    ERROR_HANDLING_UNSET, NCCL_SILENT, INTERFACE_UNSET, LOG_LEVEL_UNSET, ERROR_FILE_UNSET,
    RAY_DEDUPLICATES, FAULTHANDLER_UNSET, BUFFERED, PIPE_UNSET,
)  # fmt: skip

_WANTED = (
    (ERROR_HANDLING_UNSET, ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")),
    (NCCL_SILENT, ("NCCL_DEBUG",)),
    (LOG_LEVEL_UNSET, ("TORCH_CPP_LOG_LEVEL",)),
    (FAULTHANDLER_UNSET, ("PYTHONFAULTHANDLER",)),
    (BUFFERED, ("PYTHONUNBUFFERED",)),
    (PIPE_UNSET, ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE",)),
)


def judge(environment: Environment, around: Surroundings) -> Iterator[Finding]:
    """What is unset where a training starts; nothing where none does."""
    launch = environment.launch
    if launch is None:
        return
    for check, names in _WANTED:
        if not environment.sets(*names) and not (check is PIPE_UNSET and _before_pipes(around)):
            yield launch.finding(check)
    words = launch.evidence.split()
    if "ray" in words and not environment.sets("RAY_DEDUP_LOGS"):
        yield launch.finding(RAY_DEDUPLICATES)
    if "nnodes" in launch.evidence and not environment.sets("NCCL_SOCKET_IFNAME"):
        yield launch.finding(INTERFACE_UNSET)
    if "torchrun" in launch.evidence and not around.records_errors:
        yield launch.finding(ERROR_FILE_UNSET)


def _before_pipes(around: Surroundings) -> bool:
    return around.torch is not None and around.torch < (2, 3)
