"""Queries NCCL's RAS service for the state of a job's ranks, over TCP.

Protocol and outputs: NCCL user guide, "RAS" (since 2.24; JSON since 2.28.7), and
src/ras/client_support.cc. Commands are lines; the server answers them in order, and closes after
a status. An older server answers `SET FORMAT` with an error and continues in text. Only `STATUS`
is requested, which changes nothing in the job. An answer without suspects is no evidence of
health, because RAS' threads keep running in a process whose collectives hang.
"""

import re
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median_high
from typing import Any

import msgspec

from ldlm_monitor.base.records import Event, Scalar
from ldlm_monitor.base.text.format import names_of
from ldlm_monitor.host.probe import host_events
from ldlm_monitor.judge.run.verdict import ProbeCandidate

DEFAULT_ADDRESS = ("localhost", 28028)  # NCCL's default
ADDRESS_VARIABLE = "NCCL_RAS_ADDR"  # NCCL's variable for another address
RAS_SECONDS = 2.0
"""Seconds for which RAS waits for silent processes: a choice below its default 5, a look's time."""
_CONNECT_SECONDS = 1.0  # the service is on this host, where a connection takes milliseconds
MAX_BYTES = 32_000_000
"""Bytes of an answer: a choice; 32 kB for each of 1,000 ranks. The rest is not read."""
# Lines of the text format: a communicator's missing ranks; the begin of a list of dead or silent
# processes; a member of such a list; how many ranks came to an operation; a communicator's begin.
# Repeats are bounded: a forged answer costs little time and memory.
_MISSING = re.compile(r"The missing ranks?: ([\d ,]{1,200000})")
_DEAD = re.compile(r"(\d{1,9}) job process(?:es)? (?:is|are) considered dead")
_SILENT = re.compile(r"Missing communicator data from (\d{1,9}) job process")
_PROCESS = re.compile(
    r"(?:Rank (\d{1,9}) -- GPU (\S{1,20}) managed by process (\d{1,9}) on node (\S{1,256})"
    r"|Process (\d{1,9}) on node (\S{1,256}) managing GPUs? (\S{1,20}))"
)
_LAUNCHED = re.compile(r"(\d{1,9}) ranks? ha(?:s|ve) launched up to operation (\d{1,19})")
_COMMUNICATOR = re.compile(r"#\d+-\d+ \(([0-9a-f]{1,32})\) (\S{1,40})")

_NO_ERROR = (0, 7)  # of ncclResult_t (nccl.h): ncclSuccess, ncclInProgress


class RasError(OSError):
    """No RAS listens at the address, or it does not answer in time or in RAS' form."""


class _Status(msgspec.Struct):
    unresponsive: bool = False
    considered_dead: bool = False
    async_error: int = 0
    abort_flag: bool = False


class _RasRank(msgspec.Struct):
    rank: int
    host: str = ""
    pid: int | None = None
    cuda_dev: int | None = None
    status: _Status = msgspec.field(default_factory=_Status)
    collective_counts: dict[str, int] = msgspec.field(default_factory=dict)


class _Communicator(msgspec.Struct):
    ranks: list[_RasRank] = msgspec.field(default_factory=list)
    missing_ranks: list[_RasRank] = msgspec.field(default_factory=list)


class _RasAnswer(msgspec.Struct):
    communicators: list[_Communicator]


@dataclass(frozen=True, slots=True)
class Suspect:
    """A rank that RAS reports as `what` (missing, unresponsive, dead, failed or behind).

    `rank`: its number within the communicator, which need not be the global one. Unknown values
    are None or "".
    """

    rank: int | None
    host: str
    pid: int | None
    gpu: str
    what: str


def ask(address: tuple[str, int] = DEFAULT_ADDRESS, seconds: float = 4.0) -> list[Suspect]:
    """The suspects by the RAS at `address`. Raises `RasError` without an answer in `seconds`."""
    until = time.monotonic() + seconds
    # RAS takes whole seconds, 1 at least; one of `seconds` is for the connection and the answer.
    commands = (
        f"CLIENT PROTOCOL 2\nTIMEOUT {max(1, round(min(RAS_SECONDS, seconds - 1)))}\n"
        "SET FORMAT json\nVERBOSE STATUS\n"
    )
    received = bytearray()
    try:
        with socket.create_connection(address, min(_CONNECT_SECONDS, seconds)) as connection:
            connection.sendall(commands.encode())
            while len(received) < MAX_BYTES:
                # Above 0, which would mean non-blocking.
                connection.settimeout(max(until - time.monotonic(), 0.001))
                part = connection.recv(65_536)  # bytes: any size does, larger ones save calls
                if not part:
                    break
                received += part
    except OSError as error:
        raise RasError(f"{address[0]}:{address[1]}: {error.strerror or error}") from error
    return suspects_of(received.decode("utf-8", "replace"))


def address_of(text: str) -> tuple[str, int] | None:
    """Host and port of `NCCL_RAS_ADDR`'s `HOST:PORT` or `[IPv6]:PORT`; None for other texts."""
    host, _, port = text.strip().rpartition(":")
    if not port.isdecimal() or int(port) > 65535:  # the highest TCP port
        return None
    return host.removeprefix("[").removesuffix("]") or "localhost", int(port)


def suspects_of(answer: str) -> list[Suspect]:
    """The suspects in an answer. Raises `RasError` if it is not from RAS, or is cut short."""
    if "SERVER PROTOCOL" not in answer[:200]:  # characters: its first line is shorter
        raise RasError("what answered is not NCCL's RAS")
    start = answer.find("\n{")
    if start < 0:
        return _of_text(answer)
    try:
        return _of_json(msgspec.json.decode(answer[start + 1 :], type=_RasAnswer))
    except (msgspec.DecodeError, RecursionError) as error:
        raise RasError(f"the answer is cut short or malformed ({error})") from error


def _of_json(answer: _RasAnswer) -> list[Suspect]:
    suspects: list[Suspect] = []
    for each in answer.communicators:
        for rank, what in _accused(each):
            gpu = "" if rank.cuda_dev is None else str(rank.cuda_dev)
            host = rank.host[:256]  # characters, as in `_PROCESS`
            suspects.append(Suspect(rank.rank, host, rank.pid, gpu, what))
    return [*dict.fromkeys(suspects)]


def _accused(communicator: _Communicator) -> Iterator[tuple[_RasRank, str]]:
    """Ranks with a problem; `behind`: launched fewer collectives in all than the median rank."""
    for rank in communicator.missing_ranks:
        how = "unresponsive" if rank.status.unresponsive else "missing"
        yield rank, "dead" if rank.status.considered_dead else how
    launched = [sum(rank.collective_counts.values()) for rank in communicator.ranks]
    usual = median_high(launched or [0])
    for rank, count in zip(communicator.ranks, launched, strict=True):
        if rank.status.abort_flag or rank.status.async_error not in _NO_ERROR:
            yield rank, "failed"
        if count < usual:
            yield rank, "behind"


def _of_text(answer: str) -> list[Suspect]:
    """Suspects of the text format: a line names the kind of problem, the ranks follow."""
    suspects: list[Suspect] = []
    what = "missing"
    groups: dict[int, int] = {}
    for line in answer.splitlines():
        if _COMMUNICATOR.search(line):
            groups = {}
        if _DEAD.search(line):
            what = "dead"
        elif _SILENT.search(line):
            what = "unresponsive"
        elif match := _LAUNCHED.search(line):
            groups[int(match[2])] = int(match[1])
            most = max(groups, key=lambda each: groups[each])
            what = "behind" if int(match[2]) < most else ""
        elif match := _MISSING.search(line):
            numbers = re.findall(r"\d{1,9}", match[1])
            suspects += [Suspect(int(number), "", None, "", "missing") for number in numbers]
        elif (match := _PROCESS.search(line)) and what:
            suspects.append(_listed(match, what))
    return [*dict.fromkeys(suspects)]


def _listed(match: re.Match[str], what: str) -> Suspect:
    rank, gpu, pid, host, process, node, gpus = match.groups()
    if rank is not None:
        return Suspect(int(rank), host, int(pid), gpu, what)
    return Suspect(None, node, int(process), gpus, what)


def describe(suspects: Sequence[Suspect]) -> str:
    """The suspects in one sentence for people."""
    if not suspects:
        return "RAS finds nothing wrong, which proves nothing"
    said = []
    for what in dict.fromkeys(each.what for each in suspects):
        found = [each for each in suspects if each.what == what]
        ranks = {each.rank for each in found if each.rank is not None}
        who = names_of(ranks) if ranks else f"process {found[0].pid} on {found[0].host}"
        said.append(f"{who} {what}")
    return "RAS: " + ", ".join(said)


def event_of(case: ProbeCandidate, suspects: Sequence[Suspect]) -> Event:
    """An event of RAS' report; without suspects it is context, and clears no rank."""
    fields: dict[str, Any] = {}
    for what in dict.fromkeys(each.what for each in suspects):
        ranks = {each.rank for each in suspects if each.what == what and each.rank is not None}
        if ranks:
            fields[what] = host_events.listed(ranks)
    processes: list[dict[str, Scalar]] = [asdict(each) for each in suspects if each.pid is not None]
    return host_events.event(
        case,
        "ranks lost by NCCL" if suspects else "no rank lost by NCCL",
        describe(suspects),
        processes=processes[: host_events.MAX_SHOWN],
        **fields,
    )
