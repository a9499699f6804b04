"""What the doctor looks for in the environment variables that NCCL reads.

What it reads is taken from its sources, up to 2.30.
"""

from ldlm_doctor.finding import Check

_NCCL_DOCS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"

DEBUG_NOISE = Check(
    "nccl-debug-noise",
    "warning",
    "NCCL_DEBUG floods the log",
    "INFO and TRACE without a choice of subsystems write many lines for every rank and "
    "communicator; TRACE and "
    "ALL also slow the training down. Errors drown in them.",
    _NCCL_DOCS,
    "",
    "NCCL_DEBUG=WARN, or INFO with NCCL_DEBUG_SUBSYS=INIT,ENV,NET.",
)
DEBUG_FILE = Check(
    "nccl-debug-file-shared",
    "error",
    "All ranks of a node write the same NCCL_DEBUG_FILE",
    "Each process opens the file anew and overwrites the others' lines, and they no longer "
    "stand in the job's log.",
    _NCCL_DOCS,
    "",
    "Put %h (host) and %p (process) into its name.",
)
IB_TIMEOUT = Check(
    "nccl-ib-timeout",
    "info",
    "An unusual InfiniBand timeout",
    "A try takes 4.096 us x 2^value, with seven retries by default: 14 gives up after 0.5 s, 18 "
    "after 9 s, 20 after 34 s, 22 after 137 s.",
    _NCCL_DOCS,
    "NCCL defaults: 14 up to 2.13, 18 up to 2.22, 20 since 2.23",
    "Between 18 and 22, or NCCL's default.",
)
IB_GID = Check(
    "nccl-ib-gid-index",
    "info",
    "A fixed GID index",
    "NCCL finds the index by itself; a fixed one that differs between nodes fails in "
    "ibv_modify_qp.",
    _NCCL_DOCS,
    "NCCL 2.21, with PyTorch 2.5; before, the default was 0",
    "Remove it, unless the fabric needs it.",
)
TRANSPORT_OFF = Check(
    "nccl-transport-off",
    "warning",
    "A fast transport of NCCL is switched off",
    "Ranks then talk over shared memory or sockets: often left over from debugging, and much "
    "slower.",
    _NCCL_DOCS,
    "",
    "Remove it, unless the machines have no such transport.",
)
PORT_FAILOVER = Check(
    "nccl-port-failover",
    "info",
    "InfiniBand port failover is on",
    "The job survives the failure of a port, and goes on more slowly without saying so elsewhere.",
    "sources of NCCL",
    "NCCL 2.30",
    "Watch for NCCL's failover lines (ldlm-monitor does: nccl_ib_failover).",
)
RAS_OFF = Check(
    "nccl-ras-off",
    "info",
    "NCCL's RAS is switched off",
    "It tells which ranks are missing in a hang, and costs nothing until it is asked.",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html",
    "NCCL 2.24, with PyTorch 2.7",
    "Remove it.",
)
NCCL_OLD_SETTING = Check(
    "nccl-setting-deprecated",
    "info",
    "A setting that NCCL has given up",
    "NCCL names it deprecated.",
    _NCCL_DOCS,
    "",
    "Remove it.",
)
ASYNC_EVENTS_OFF = Check(
    "nccl-async-events-off",
    "warning",
    "InfiniBand's asynchronous events are not told",
    "A port that fails is then silent until the retries are over.",
    _NCCL_DOCS,
    "NCCL 2.23; on by default",
    "Remove it.",
)
SOCKET_THREADS = Check(
    "nccl-socket-threads",
    "info",
    "Socket threads where InfiniBand is used",
    "NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD are for TCP sockets alone; their product "
    "may be 64 at most.",
    _NCCL_DOCS,
    "NCCL 2.4.8",
    "Remove them, unless ranks talk over TCP; then measure.",
)

CHECKS = (
    DEBUG_NOISE, DEBUG_FILE, IB_TIMEOUT, IB_GID, TRANSPORT_OFF, PORT_FAILOVER,
    RAS_OFF, NCCL_OLD_SETTING, ASYNC_EVENTS_OFF, SOCKET_THREADS,
)  # fmt: skip
