"""The clue, which is what an incident keeps of an event, and the tier of cause that it can be.

Tiers and effective times follow the project's failure taxonomy, section 4: a rank that waited
for a collective reports a hang that began before its line; a rank that accuses another one is
no cause.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from ldlm_monitor.base.meaning import NOTHING, Meaning
from ldlm_monitor.base.records import Event, FieldValue, Position
from ldlm_monitor.logs.parse.meanings import meaning_of

MAX_MESSAGE: Final = 500  # characters. A choice: an incident's 2048 messages take 1 MB, no more
MAX_RANKS: Final = 65536
"""Ranks from this number on are ignored: no training has as many, but a forged log may."""


class Tier(IntEnum):
    """How a root cause is identified, the best evidence first."""

    EXTERNAL = 0  # the scheduler or a person ended the job
    HARDWARE = 1  # a machine reports a fault
    LOCAL = 2  # a process reports an error of its own
    NAMED = 3  # other lines accuse a rank
    NETWORK = 4  # a link is broken
    SILENCE = 5  # a rank did not report what all others did
    UNATTRIBUTED = 6  # no evidence


@dataclass(frozen=True, slots=True)
class Clue:
    """One event in bounded size. `seen`: when it was processed; `effective`: when it began.

    `interrupted`: it is an exception that was raised while a Ctrl-C or SIGTERM was handled.

    Both are Unix seconds. `rank` is global. `host` is a machine's name or address in the line,
    `node` the number or name in the file's name or in a prefix. What is not logged is None.
    """

    kind: str
    role: str
    severity: str
    seen: float
    effective: float
    message: str
    position: Position
    rank: int | None = None
    node: str | None = None
    host: str | None = None
    pid: int | None = None
    fields: dict[str, FieldValue] = field(default_factory=dict)
    meaning: Meaning = NOTHING
    interrupted: bool = False

    @property
    def order(self) -> tuple[float, str, int, int]:
        """Sort key that does not depend on the order of arrival."""
        return (self.effective, self.position.path, self.position.line, self.position.offset)


FAILING: Final = frozenset({"root", "evidence", "victim", "death"})  # `role` of a failure's events
SERIOUS: Final = frozenset({"error", "critical"})  # severities of a failure's events
_SECONDS_BEFORE: Final = {"ran_ms": 1e-3, "stuck_seconds": 1.0, "timeout_ms": 1e-3, "seconds": 1.0}
"""Fields with the time from an event's begin to its line, the most exact first -> the field's unit
in seconds."""
_LONGEST_SECONDS: Final = 86400.0
"""Longest wait of an event, a day: no collective's timeout is as long, but a forged one may be."""
_LOST_PEER: Final = frozenset(
    {"ConnectionResetError", "ConnectionRefusedError", "ConnectionAbortedError"}
    | {"BrokenPipeError", "EOFError"}
)
"""Exceptions that are raised because another process had gone."""
_OF_A_PEER: Final = (
    "Connection closed by peer",
    "Watchdog caught collective",
    "NCCL communicator was aborted",
    "NCCL error in: ",
    "DistBackendError: ",
    "DistNetworkError: ",
    "DistStoreError: ",
    "gloo/transport/",
)
"""Texts in the traceback of an exception that was raised because another rank had gone."""
_INTERRUPTS: Final = ("KeyboardInterrupt", "SignalException")
_MAX_NAME: Final = 200  # characters of a host's name. A choice: real ones fit, forged ones are cut
# Fields that the analysis reads or views show; others are dropped, since lines can be huge.
_KEPT: Final = frozenset(
    {
        *("seq", "op_type", "numel_in", "numel_out", "shape", "timeout_ms", "pg_guid", "pg_desc"),
        *("pg_rank", "pg_id", "missing_rank", "missing_ranks", "missing", "dead", "ranks", "class"),
        *("rank_a", "rank_b", "op_a", "op_b", "shape_a", "shape_b", "other_rank", "reported_rank"),
        *("exitcode", "signal", "local_rank", "what", "reason", "peer", "last_error", "event"),
        *("file", "line", "exc_type", "step", "processes", "quantity"),
    }
)


def fails(event: Event) -> bool:
    """Whether an event is of a failure, so that it opens an incident if none is open."""
    intended = meaning_of(event).opens and event.severity != "info"
    return (intended or event.severity in SERIOUS) and event.fields.get("role") in FAILING


def clue_of(event: Event, seen: float) -> Clue:
    """The clue of an event that was processed at `seen`."""
    fields = event.fields
    began = event.time if event.time is not None else seen
    role = _role(event)
    meaning = meaning_of(event, role)
    return Clue(
        kind=event.kind,
        role=role,
        severity=event.severity,
        seen=seen,
        effective=began - (_lasted(event) if meaning.lasts else 0.0),
        message=event.message[:MAX_MESSAGE],
        position=event.position,
        rank=_rank(event),
        node=event.node,
        host=_text(fields.get("host")) or _text(fields.get("reported_node")),
        pid=whole(fields.get("pid")),
        fields={name: fields[name] for name in fields if name in _KEPT},
        meaning=meaning,
        interrupted=any(each in str(fields.get("traceback", "")) for each in _INTERRUPTS),
    )


def tier_of(clue: Clue) -> Tier | None:
    """The tier in which a clue can be the cause; None if it cannot be one."""
    cause = clue.meaning.cause
    if cause == "none":
        return None
    names_none = cause == "named" and clue.role in ("context", "death") and not named_ranks(clue)
    return None if names_none else Tier[cause.upper()]


def is_own_failure(clue: Clue) -> bool:
    """Whether a process or a machine failed by itself: no signal to all processes explains it."""
    tier = tier_of(clue)
    raised = "exc_type" in clue.fields or clue.meaning.shows == {"gpu"}
    by_signal = clue.interrupted or "signal" in clue.fields or "lost worker" in clue.meaning.words
    is_own = tier is Tier.HARDWARE or (tier is Tier.LOCAL and raised and not by_signal)
    return is_own and clue.role == "root" and clue.severity in SERIOUS


def named_ranks(clue: Clue) -> list[int]:
    """The ranks that a clue reports as missing or dead; empty if it names none."""
    for name in ("missing_ranks", "missing", "dead", "missing_rank"):
        field = clue.fields.get(name)
        if field or field == 0:
            return ranks_in(field)
    return []


def rank_in(value: object) -> int | None:
    """The value of a field as a rank; None if it cannot be one."""
    number = whole(value)
    return number if number is not None and 0 <= number < MAX_RANKS else None


def ranks_in(value: FieldValue) -> list[int]:
    """The ranks of a field such as 3, "2, 3", [2, 3] or "0-3,7", without parts that are no rank."""
    if isinstance(value, int):
        return [value] if rank_in(value) is not None else []
    parts = value if isinstance(value, list) else str(value).strip("[]").split(",")
    ranks: list[int] = []
    for part in parts:
        first, _, last = str(part).strip().partition("-")
        # At most 12 digits, two ranks below a million: a forged line may have a million digits.
        if first.isdecimal() and (not last or last.isdecimal()) and len(first + last) < 13:
            ranks += range(int(first), min(int(last or first) + 1, MAX_RANKS))
        if len(ranks) >= MAX_RANKS:  # a forged line may repeat a long range
            break
    return ranks[:MAX_RANKS]


def _role(event: Event) -> str:
    """The event's role; the role of an exception that a lost peer caused is `victim`."""
    role = str(event.fields.get("role", "context"))
    if role != "root" or "exception" not in meaning_of(event).words:
        return role
    kind = str(event.fields.get("exc_type", "")).rpartition(".")[2]
    text = str(event.fields.get("traceback", ""))
    return "victim" if kind in _LOST_PEER or any(part in text for part in _OF_A_PEER) else role


def _rank(event: Event) -> int | None:
    fields = (event.fields.get(name) for name in ("reporter", "aborted_rank", "global_rank"))
    found = (rank_in(each) for each in (event.rank, *fields))
    return next((rank for rank in found if rank is not None), None)


def _lasted(event: Event) -> float:
    for name, unit in _SECONDS_BEFORE.items():
        value = event.fields.get(name)
        if isinstance(value, int | float):
            return min(max(float(value) * unit, 0.0), _LONGEST_SECONDS)
    return 0.0


def _text(value: FieldValue) -> str | None:
    return value[:_MAX_NAME] if isinstance(value, str) and value else None


def whole(value: object) -> int | None:
    """The value of a field if it is an integer; otherwise None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
