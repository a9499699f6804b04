"""What the doctor looks for in the environment variables that PyTorch and CUDA read.

Defaults by version are those of the official wheels of PyTorch 2.2.2, 2.3.1, 2.4.1, 2.5.1, 2.6.0,
2.7.1, 2.9.1, 2.12.1 and 2.15.0.
"""

from ldlm_doctor.finding import Check

_TORCH_DOCS = "https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html"
_GROUP = "ProcessGroupNCCL.hpp and .cpp of PyTorch"

HEARTBEAT_DAYS = Check(
    "heartbeat-timeout-days",
    "critical",
    "The NCCL heartbeat timeout is longer than a day",
    "When a rank's watchdog thread is stuck (in a CUDA call, behind the GIL), PyTorch's heartbeat "
    "monitor kills it after this time, twice over. With days, a hung job keeps all its GPUs until "
    "somebody looks.",
    f"{_GROUP}; {_TORCH_DOCS}",
    "PyTorch 2.2; default 480 s since 2.5 (600 s in 2.3 and 2.4)",
    "Remove it, or give a time that is no longer than the process group's own timeout. How long a "
    "collective may take is init_process_group(timeout=...), not this.",
)
HEARTBEAT_LONG = Check(
    "heartbeat-timeout-long",
    "warning",
    "The NCCL heartbeat timeout is longer than the process group's",
    "The monitor of a stuck watchdog then comes after the collective timeout of the other ranks: "
    "the job is torn down before the stuck rank dumps its flight record.",
    f"{_GROUP} (the default was lowered below the collective timeout in pull request 133028)",
    "PyTorch 2.2",
    "Give a time below the process group's timeout (10 minutes for NCCL unless "
    "init_process_group(timeout=...) says otherwise), or remove it.",
)
HEARTBEAT_SHORT = Check(
    "heartbeat-timeout-short",
    "warning",
    "The NCCL heartbeat timeout is shorter than two minutes",
    "A first compilation, a CUDA graph capture or a checkpoint that holds the GIL is then taken "
    "for a hang, and a healthy job is killed.",
    f"{_GROUP} (pull request 116267 raised the default from 2 to 10 minutes)",
    "PyTorch 2.2",
    "Remove it (default 480 s since 2.5), or give more than the longest such pause.",
)
MONITORING_OFF = Check(
    "nccl-monitoring-off",
    "error",
    "PyTorch's heartbeat monitor is switched off",
    "A rank whose watchdog thread is stuck is then never ended: the job hangs for ever, and no "
    "flight record is written. TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC has no effect either.",
    f"{_GROUP}; {_TORCH_DOCS}",
    "PyTorch 2.2; on by default since 2.3",
    "Remove it, or set it to 1 (2.2 needs that); where healthy jobs were killed, raise "
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC instead.",
)
NCCL_TIMEOUT = Check(
    "nccl-timeout-unread",
    "warning",
    "NCCL_TIMEOUT is read by nothing",
    "Neither NCCL nor PyTorch nor transformers, Lightning, Accelerate or DeepSpeed reads it: the "
    "timeout that somebody wanted here is not in force.",
    "absent from the sources of NCCL up to 2.30 and from the libraries of PyTorch 1.13 to 2.15",
    "",
    "Remove it, and set the timeout where it is read: init_process_group(timeout=...), ddp_timeout "
    "of transformers (1800 s), InitProcessGroupKwargs(timeout=...) of Accelerate, "
    "DEEPSPEED_TIMEOUT "
    "(minutes).",
)
DEPRECATED_NAME = Check(
    "nccl-name-deprecated",
    "info",
    "An old name of a PyTorch setting",
    "PyTorch reads its own settings under TORCH_NCCL_ names; the NCCL_ name still works, with a "
    "warning, and loses where both are set.",
    f"{_TORCH_DOCS}; deprecated names in {_GROUP}",
    "PyTorch 2.2",
    "Use the TORCH_NCCL_ name; up to PyTorch 2.1 only the old one works.",
)
NAME_IGNORED = Check(
    "torch-nccl-name-ignored",
    "error",
    "A TORCH_NCCL_ name that this PyTorch does not know",
    "Up to PyTorch 2.1 these settings have NCCL_ names; the new ones are ignored in silence.",
    _GROUP,
    "PyTorch 2.1 and older",
    "Use the NCCL_ name, or a newer PyTorch.",
)
BLOCKING_WAIT = Check(
    "nccl-blocking-wait",
    "warning",
    "Blocking wait is on",
    "The main thread blocks in each wait. Asynchronous error handling is then ignored, and since "
    "PyTorch 2.6 no watchdog thread is made: no timeout lines, no flight record, no heartbeat.",
    f"{_GROUP}; {_TORCH_DOCS}",
    "PyTorch 1.7; without a watchdog since 2.6",
    "Remove it, and leave TORCH_NCCL_ASYNC_ERROR_HANDLING to end a hang. Note that "
    "NCCL_BLOCKING_WAIT=0 "
    "changes nothing where TORCH_NCCL_BLOCKING_WAIT=1 is set: the new name wins.",
)
ASYNC_OFF = Check(
    "nccl-async-error-handling-off",
    "error",
    "Asynchronous error handling is off",
    "A collective that fails or times out is then not aborted: the other ranks wait for ever.",
    f"{_GROUP}; {_TORCH_DOCS}",
    "PyTorch 1.7",
    "Remove it: PyTorch's default is 3, and torchrun sets 1 where it is unset.",
)
NEVER_DUMPS = Check(
    "flight-recorder-never-dumps",
    "warning",
    "The flight recorder records, but is not dumped",
    "In PyTorch 2.6 the recorder is on (2000 entries), and TORCH_NCCL_DUMP_ON_TIMEOUT is off: "
    "it costs "
    "memory, and tells nothing when a collective times out.",
    _GROUP,
    "PyTorch 2.6 only",
    "export TORCH_NCCL_DUMP_ON_TIMEOUT=1",
)
RECORDER_OFF = Check(
    "flight-recorder-off",
    "info",
    "The flight recorder is not set up",
    "Without its dump, a timeout does not tell which rank did not join which collective.",
    f"{_GROUP}; https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html",
    "PyTorch 2.2 to 2.5 need both; 2.6 the second; on by default since 2.7",
    "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1, and "
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE (since 2.9 TORCH_FR_DUMP_TEMP_FILE) in a folder that all "
    "nodes "
    "share; the rank is appended.",
)
DUMP_LOCAL = Check(
    "flight-recorder-dump-local",
    "info",
    "Flight records are dumped into a folder of the node",
    "They are gone with the container or the node, and have to be gathered from every node.",
    _TORCH_DOCS,
    "PyTorch 2.2",
    "Name a folder that all nodes share; the rank is appended.",
)
DUMP_WAIT_SHORT = Check(
    "flight-recorder-dump-wait-short",
    "info",
    "Little time to dump flight records",
    "Ranks that dump to a slow file system do not finish: "
    '"Future for Flight recorder dump ... timed out".',
    _GROUP,
    "PyTorch 2.3; default 60 s, since 2.8 15 s",
    "Give TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC at least 15000.",
)
PIPE_IGNORED = Check(
    "flight-recorder-pipe-ignored",
    "warning",
    "The pipe that asks for a flight record is not made",
    "This check of the buffer's size has a default of its own, 0: the pipe is only made where "
    "TORCH_NCCL_TRACE_BUFFER_SIZE is set, although the recorder is on by default.",
    "headers of PyTorch 2.3.1 to 2.9.1",
    "PyTorch 2.3 to 2.11; mended in 2.12",
    "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 too",
)
DEBUG_DETAIL = Check(
    "distributed-debug-detail",
    "warning",
    "TORCH_DISTRIBUTED_DEBUG=DETAIL in a training",
    "Every collective is checked against all ranks before it runs: a great slowdown, for "
    "debugging.",
    "https://docs.pytorch.org/docs/stable/distributed.html#torch-distributed-debug",
    "PyTorch 1.9",
    "Remove it, or use INFO.",
)
DESYNC_DEBUG = Check(
    "nccl-timing",
    "info",
    "Extra CUDA events for every collective",
    "NCCL desync debug and timing record events that the watchdog asks for; PyTorch's header "
    "warns that this can "
    "raise the chance that the watchdog hangs.",
    _GROUP,
    "PyTorch 2.0",
    "Remove it outside a diagnosis.",
)
LAUNCH_BLOCKING = Check(
    "cuda-launch-blocking",
    "warning",
    "CUDA_LAUNCH_BLOCKING=1",
    "Every kernel is waited for: nothing overlaps any more. It is for debugging.",
    "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars",
    "",
    "Remove it.",
)
RECORD_STREAMS = Check(
    "avoid-record-streams",
    "info",
    "TORCH_NCCL_AVOID_RECORD_STREAMS is the default now",
    "It is deprecated, and does nothing.",
    _GROUP,
    "PyTorch 2.8",
    "Remove it.",
)
NAN_CHECK = Check(
    "nccl-nan-check",
    "warning",
    "A NaN in a collective kills the process",
    "TORCH_NCCL_NAN_CHECK asserts on the device: good for finding where a NaN comes from, but "
    "with fp16 loss "
    "scaling, where overflows are normal, it ends the training.",
    f"{_GROUP}; {_TORCH_DOCS}",
    "PyTorch 2.4",
    "Use it for a diagnosis only.",
)
ALLOCATOR_TWICE = Check(
    "allocator-set-twice",
    "info",
    "Two different allocator settings",
    "PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF are names of one thing; which one wins "
    "depends on the version.",
    "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",
    "PyTorch 2.9",
    "Set both to the same, or one.",
)
DEEPSPEED_TIMEOUT = Check(
    "deepspeed-timeout-minutes",
    "warning",
    "DEEPSPEED_TIMEOUT counts minutes",
    "It is the process group's timeout: all GPUs wait this long for one that hangs. 1800 is no "
    "half hour, but 30 hours.",
    "deepspeed/constants.py (default 10)",
    "",
    "DEEPSPEED_TIMEOUT=30",
)
NOT_EXPORTED = Check(
    "setting-not-exported",
    "warning",
    "A setting that no process gets to see",
    "The shell keeps it to itself: it is assigned, but not exported, and not given to a command.",
    "https://www.gnu.org/software/bash/manual/bash.html#Environment",
    "",
    "export it.",
)

CHECKS = (
    HEARTBEAT_DAYS, HEARTBEAT_LONG, HEARTBEAT_SHORT, MONITORING_OFF, NCCL_TIMEOUT, DEPRECATED_NAME,
    NAME_IGNORED, BLOCKING_WAIT, ASYNC_OFF, NEVER_DUMPS, RECORDER_OFF, DUMP_LOCAL, DUMP_WAIT_SHORT,
    PIPE_IGNORED, DEBUG_DETAIL, DESYNC_DEBUG, LAUNCH_BLOCKING, RECORD_STREAMS,
    NAN_CHECK, ALLOCATOR_TWICE, DEEPSPEED_TIMEOUT, NOT_EXPORTED,
)  # fmt: skip
