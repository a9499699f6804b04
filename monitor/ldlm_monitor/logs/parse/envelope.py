"""The prefixes that launchers, loggers and containers put before a line.

Prefixes are removed from the left, repeatedly. `[rankN]:`, DeepSpeed's `[Rank N]`, Ray's
`[rank=N]`, Horovod's `[N]<stderr>:` and Open MPI's `[job,N]<stderr>:` name a global rank,
and so does the `[Rank N]` that a trainer itself prints. Three others are not read as ranks:
`[default3]:` is a local rank, srun's `3: ` can be a node, and the `[Rank N]` of torch's C++
log is local to a process group. pdsh, Kubernetes, Ray and syslog name the node.
"""

from dataclasses import dataclass

from ldlm_monitor.base.queries import Level
from ldlm_monitor.logs.parse.jsonl import unix_time
from ldlm_monitor.logs.parse.patterns import Pattern, PatternMatch, compile_pattern


@dataclass(slots=True)
class Envelope:
    """The prefixes of a record.

    `start` is the index of the text after the prefixes. `stream` has the prefixes that differ
    between the writers of one file. `rank` is global, `node` a host or pod; `time` (Unix seconds)
    is set if a prefix has date, time and zone. `shell`: the record is a `set -x` trace.
    """

    start: int = 0
    stream: bytes = b""
    rank: int | None = None
    node: str | None = None
    time: float | None = None
    level: Level | None = None
    shell: bool = False


_STAMP = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?"  # a date and a time
_RANK = compile_pattern(r"\[rank(?P<rank>\d{1,9})\]: ?")  # torchrun's `[rank3]:`
_ROLE = compile_pattern(r"\[[A-Za-z_]+\d+\]:")  # torchrun's `[default3]:`, role and local rank
_GLOG_BRACKET = compile_pattern(  # torch's C++ log in brackets: `[E1022 10:15:00.1 a.cpp:5] `
    r"\[(?P<level>[EWIF])(?:\d{3,4} \d\d:\d\d:\d\d(?:\.\d+)?)? [^\]\s]+:\d+\] "
)
_DEEPSPEED = compile_pattern(  # `[2026-01-29 10:15:00,104] [INFO] [logging.py:1:f] [Rank 5] `
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] \[(?P<level>[A-Z]+)\] \[[^\]\s]+\] "
    r"(?:\[Rank (?P<rank>\d{1,9})\] )?"
)
# Loggers that put the time in brackets.
_BRACKET_STAMP = compile_pattern(r"\[(?P<stamp>" + _STAMP + r"(?:Z|[+-]\d\d:?\d\d)?)\] ")
# Horovod, and Open MPI, which puts the number of the job before the rank.
_HOROVOD = compile_pattern(r"\[(?:\d+,)?(?P<rank>\d{1,9})\]<(?:stdout|stderr)>: ?")
_KUBECTL = compile_pattern(r"\[pod/(?P<node>[^/\]]+)/[^\]]+\] ")  # `kubectl logs --prefix`
_STERN = compile_pattern(  # stern's pod and container, for pods as training operators name them
    r"(?P<node>[a-z0-9][a-z0-9\-]*-(?:worker|master|launcher|node)-\d+) "
    r"[a-z][a-z0-9\-]* (?:(?:\||\xe2\x80\xba) )?"
)
_COMPOSE = compile_pattern(r"[a-z0-9][a-z0-9_.\-]*-\d+ +\| ")  # `docker compose logs`
_PDSH = compile_pattern(  # only usual words of hosts' names: any `key: value` begins like a host
    r"(?P<node>(?:[A-Za-z0-9.\-]*(?:node|worker|host|dgx|hgx|compute|server|machine|master)"
    r"[A-Za-z0-9\-]*\d|localhost|ip-\d+(?:-\d+){3}|\d+(?:\.\d+){3})[A-Za-z0-9.\-]*): "
)
_SYSLOG = compile_pattern(  # RFC 3164, or with an ISO time
    r"(?:[A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?"
    r"|(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d))) "
    r"(?P<node>[A-Za-z0-9.\-]+) (?:kernel|[\w./\-]+\[\d+\]): "
)
_DMESG = compile_pattern(  # the kernel's log, with seconds since boot or `dmesg --ctime`
    r"(?:<\d{1,3}>)?\[(?: *\+?\d+\.\d{6}"
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\] "
)
_DMESG_DECODED = compile_pattern(  # `dmesg --decode`: facility and level before the time
    r"[a-z]+ *:[a-z]+ *: (?:(?P<stamp>" + _STAMP + r"(?:Z|[+-]\d\d:?\d\d)?)|\[[^\]]{1,40}\]) "
)
_SRUN = compile_pattern(r" {0,5}\d{1,5}: ")  # `srun --label`: the task's number
_STAMPED = compile_pattern(  # Python's logging, and the container runtime's `<time> stdout F `
    r"(?P<stamp>" + _STAMP + r"(?:Z|[+-]\d\d:?\d\d)?)(?: std(?:out|err) F)?(?: - | )"
)
_GLOG = compile_pattern(  # torch's C++ log and other glog: `E1022 10:15:00.1 12 a.cpp:5] `
    r"(?P<level>[EWIF])\d{3,4} \d\d:\d\d:\d\d(?:\.\d+)? +(?:\d+ +)?[^\]\s]+:\d+\] "
)
_RAY = compile_pattern(  # `(WorkerDict[rank=5] pid=77, ip=10.0.0.4) `
    r"\((?:raylet|\w+(?:\[rank=(?P<rank>\d{1,9})\])? pid=\d+)(?:, ip=(?P<node>[\d.]+))?\) ?"
)
_TRAINERS_OWN = compile_pattern(
    r"\[(?:Rank|RANK|rank)[:=]? ?(?P<rank>\d{1,9})\][ :]"
    r"|(?:Rank|RANK|rank)[ =]?(?P<bare>\d{1,9}): "
)
"""A trainer's own prefix is part of its text: the rank is read, but the prefix stays."""
_OPENS_OWN_RANK = (b"[", b"R", b"r")  # first bytes of `_TRAINERS_OWN`: a cheap first test
_NCCL = compile_pattern(r"(?P<node>[\w.\-]+):\d+:\d+ \[\d+\] (?:\S+ (?:\(\S+\) )?)?NCCL ")
"""NCCL's header names the host, and stays part of the text. Its numbers are PID, TID and device."""
_NCCL_REACH = 200
"""Bytes of a line that are searched for ` NCCL `. A choice: long host names fit, more is slow."""
_MAX_NODE = 253  # bytes kept of a node's name: the longest host name (RFC 1035)
_STREAM = compile_pattern(r"(?:stdout|stderr): ")
"""The prefix of a launcher that collects its processes' output, as Accelerate's tests do."""
_SHELL = compile_pattern(r"\++ ")  # what Bash's `set -x` prints before a command (PS4)
# The first word of a line if it is a level, after names of loggers.
_WORD = compile_pattern(
    r"(?:[\w.\-]+ - )*(?:\[?(?P<level>ERROR|CRITICAL|FATAL|WARNING|WARN)\]?(?: - |:|\] )"
    r"|[\w.]+: \[(?P<bracket>ERROR|CRITICAL|FATAL|WARNING)\] )"
)

# The prefixes that can begin with a byte, in the order in which they are tried.
_BY_FIRST_BYTE: dict[int, tuple[Pattern, ...]] = {
    ord("["): (_RANK, _ROLE, _GLOG_BRACKET, _DEEPSPEED, _BRACKET_STAMP, _HOROVOD, _KUBECTL, _DMESG),
    ord(" "): (_SRUN,),
    ord("("): (_RAY,),
    ord("<"): (_DMESG,),
    **dict.fromkeys(b"0123456789", (_SYSLOG, _STAMPED, _SRUN, _PDSH)),
    **dict.fromkeys(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", (_SYSLOG,)),
    **dict.fromkeys(
        b"abcdefghijklmnopqrstuvwxyz", (_DMESG_DECODED, _STREAM, _PDSH, _STERN, _COMPOSE)
    ),
    **dict.fromkeys(b"EWI", (_GLOG,)),
    ord("F"): (_GLOG, _SYSLOG),
}
# Prefixes that differ between the writers of one file, but not between lines of one writer.
_NAMES_A_WRITER = frozenset(
    {_RANK, _ROLE, _HOROVOD, _KUBECTL, _SRUN, _RAY, _PDSH, _STERN, _COMPOSE, _STREAM}
)
# The level by the name that a logger prints; events get their severity from definitions.
_LEVELS: dict[bytes, Level] = {
    **dict.fromkeys((b"E", b"F", b"ERROR", b"CRITICAL", b"FATAL"), "error"),
    **dict.fromkeys((b"W", b"WARNING", b"WARN"), "warning"),
    **dict.fromkeys((b"I", b"INFO", b"DEBUG"), "info"),
}
_MAX_PREFIXES = 8
"""Prefixes removed from one line: a choice that bounds the time for a line of prefixes only. The
longest chain that is known (kubectl, CRI, torchrun, rank, glog) has five."""


def peel(text: bytes, start: int = 0) -> Envelope:
    """Read the prefixes of `text` from index `start` on."""
    envelope = Envelope(start)
    for _ in range(_MAX_PREFIXES):
        if not _peel_one(text, envelope):
            break
    envelope.shell = text.startswith(b"+", envelope.start) and (
        _SHELL.match(text, envelope.start) is not None
    )
    if envelope.rank is None and envelope.level is None:
        envelope.rank = _own_rank(text, envelope.start)
    if envelope.node is None and text.find(b" NCCL ", envelope.start, _NCCL_REACH) > 0:
        match = _NCCL.match(text, envelope.start)
        envelope.node = None if match is None else _node(_NCCL.named(match)["node"])
    return envelope


def level_of(text: bytes, envelope: Envelope) -> Level | None:
    """A line's level, from its prefix or its first word; None if neither is a level.

    A later `error` is often no level: `0 errors`, `error rate`.
    """
    if envelope.level is not None:
        return envelope.level
    match = _WORD.match(text, envelope.start)
    if match is None:
        return None
    named = _WORD.named(match)
    return _LEVELS[named.get("level") or named["bracket"]]


def _peel_one(text: bytes, envelope: Envelope) -> bool:
    start = envelope.start
    if start >= len(text):
        return False
    for pattern in _BY_FIRST_BYTE.get(text[start], ()):
        match = pattern.match(text, start)
        if match is not None:
            _apply(pattern, match, text, envelope)
            return True
    return False


def _apply(pattern: Pattern, match: PatternMatch, text: bytes, envelope: Envelope) -> None:
    start, end = match.span()
    named = pattern.named(match)
    if "rank" in named:
        envelope.rank = int(named["rank"])
    if "node" in named:
        envelope.node = _node(named["node"])
    if "level" in named:
        envelope.level = _LEVELS.get(named["level"])
    if "stamp" in named and envelope.time is None:
        envelope.time = unix_time(named["stamp"].decode().replace(",", "."))
    if pattern in _NAMES_A_WRITER:
        envelope.stream += text[start:end].strip()
    envelope.start = end


def _node(name: bytes) -> str:
    return name[:_MAX_NODE].decode("utf-8", "replace")


def _own_rank(text: bytes, start: int) -> int | None:
    if text[start : start + 1] not in _OPENS_OWN_RANK:
        return None
    match = _TRAINERS_OWN.match(text, start)
    if match is None:
        return None
    named = _TRAINERS_OWN.named(match)
    return int(named.get("rank") or named["bare"])
