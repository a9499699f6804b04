"""Finds and reads dumps of PyTorch's flight recorder.

Format: torch/csrc/distributed/c10d/FlightRecorderDetail.hpp, a pickle or JSON of
`entries`, `pg_config` and `pg_status` (versions 2.x; 1.x has `seq_id` and no status).
The writer appends the global rank to a prefix that is `TORCH_FR_DUMP_TEMP_FILE` (torch
2.9), before that `TORCH_NCCL_DEBUG_INFO_TEMP_FILE`, or a default that changed twice.
Anyone may have written such a file, so nothing in it is trusted: its size is bounded, it becomes
plain data only, and values of an unexpected form are ignored.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec

from ldlm_monitor.base.text.sanitize import encodable
from ldlm_monitor.host.probe.plain_pickle import MAX_BYTES, PlainPickleError, load
from ldlm_monitor.host.probe.process import open_regular

PREFIX_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")  # torch's
_DEFAULTS = (
    "~/.cache/torch/comm_lib_trace_rank_",
    "~/.cache/torch/nccl_trace_rank_",
    "/tmp/nccl_trace_rank_",
)
"""torch's default prefixes: since version 2.9, in 2.7 and 2.8, and before 2.7."""
_USUAL = ("nccl_trace_rank_", "comm_lib_trace_rank_")
"""Ends of prefixes that count in any folder: people keep torch's names in folders of their own."""
_RANKED = re.compile(r"(?P<prefix>.*?)(?P<rank>\d{1,7})(?:\.json)?$")  # a dump's file name
_RANKS = re.compile(r"\d{1,7}")  # seven digits: more than any training has ranks
MAX_FILES = 4096
"""Ranks whose dumps are read, as many as an event lists; a shared folder has all ranks' dumps."""
MAX_LISTED = 50_000  # names that are read of one folder: /tmp of a busy host has thousands
MAX_ENTRIES = 20_000  # entries read of a dump: ten times torch's default ring of 2,000
_MAX_TEXT = 200
"""Characters of a text field, because anyone may have written the file; names are shorter."""
_MAX_TENSORS = 8  # tensors of a collective, sizes of a tensor: enough to see a difference
_MAX_FRAMES = 64  # per stack; the training's own frame is within the first ones
# Parts of file names in stacks that are not the training's code.
_LIBRARIES = ("site-packages/", "dist-packages/", "/torch/distributed/", "threading.py")


class DumpError(ValueError):
    """The file is no dump, cannot be read, or was not read in time."""


@dataclass(frozen=True, slots=True)
class CollectiveEntry:
    """A collective that a rank enqueued; `seq` is its number in the process group `group`.

    `dumped`: the raw entry, of which the properties parse fields on use; of thousands of entries
    only a few are needed.
    """

    group: str
    seq: int
    completed: bool
    dumped: Mapping[object, object]

    @property
    def operation(self) -> str:
        """The operation's name without the backend, such as `all_reduce`; "" if not recorded."""
        return _text(self.dumped.get("profiling_name")).rpartition(":")[2]

    @property
    def sizes(self) -> str:
        """Shapes of its input tensors."""
        return _sizes(self.dumped.get("input_sizes"))

    @property
    def dtypes(self) -> str:
        """Data types of its input tensors."""
        return _sizes(self.dumped.get("input_dtypes"))

    @property
    def frame(self) -> str | None:
        """The line of the training's code that called it; None if no stack was recorded."""
        return _frame(self.dumped.get("frames"))

    @property
    def created(self) -> float:
        """When it was enqueued, Unix seconds; 0 if not recorded."""
        return (_number(self.dumped.get("time_created_ns")) or 0) / 1e9


@dataclass(slots=True)
class Dump:
    """The record of one rank. By group name: `members` (global ranks) and `descriptions`.

    `status`: group name to the numbers of the last enqueued and the last completed collective,
    0 if not recorded.
    """

    rank: int
    entries: list[CollectiveEntry] = field(default_factory=list)
    status: dict[str, tuple[int, int]] = field(default_factory=dict)
    members: dict[str, tuple[int, ...]] = field(default_factory=dict)
    descriptions: dict[str, str] = field(default_factory=dict)


def find(
    folders: Iterable[Path],
    named: Iterable[Path],
    environments: Iterable[Mapping[str, str]],
    *,
    since: float,
) -> dict[int, Path]:
    """Global rank to its newest dump file, written at `since` (Unix seconds) or later.

    `folders`: searched for the usual names. `named`: paths in a log. `environments`: those of the
    training's processes, with their working directory as `PWD`.
    """
    wanted: dict[Path, set[str]] = {folder: set() for folder in folders}
    for path in named:
        if match := _RANKED.match(path.name):
            wanted.setdefault(path.parent, set()).add(match["prefix"])
    for environment in environments:
        for path in _prefixes(environment):
            wanted.setdefault(path.parent, set()).add(path.name)
    newest: dict[int, tuple[float, Path]] = {}
    for folder, names in wanted.items():
        for rank, written, path in _listed(folder, names):
            if written >= since and (rank not in newest or written > newest[rank][0]):
                newest[rank] = written, path
    return {rank: path for rank, (_, path) in sorted(newest.items())[:MAX_FILES]}


def _prefixes(environment: Mapping[str, str]) -> Iterator[Path]:
    home = environment.get("HOME", "")
    named = [environment[name] for name in PREFIX_VARIABLES if environment.get(name)]
    for text in named or _DEFAULTS:
        if not text.startswith("~/"):
            yield Path(environment.get("PWD", "/"), text)
        elif home:
            yield Path(home, text[2:])


def _listed(folder: Path, prefixes: set[str]) -> Iterator[tuple[int, float, Path]]:
    try:
        with os.scandir(folder) as listing:
            for each in islice(listing, MAX_LISTED):
                match = _RANKED.match(each.name)
                if match is None or not each.is_file(follow_symlinks=False):
                    continue
                if match["prefix"] in prefixes or match["prefix"].endswith(_USUAL):
                    yield int(match["rank"]), each.stat().st_mtime, Path(each.path)
    except OSError:
        return


def read(path: Path, rank: int) -> Dump:
    """The dump in a file. Raises `DumpError`."""
    try:
        with open(open_regular(path), "rb") as file:
            data = file.read(MAX_BYTES + 1)
        is_json = data[:1] in (b"{", b"[") and len(data) <= MAX_BYTES  # `load` refuses more
        tree: object = msgspec.json.decode(data) if is_json else load(data)
    except (OSError, PlainPickleError, msgspec.DecodeError, RecursionError) as error:
        raise DumpError(f"{path}: {error}") from error
    if (dump := dump_of(tree, rank)) is None:
        raise DumpError(f"{path}: not a flight recorder's dump")
    return dump


def dump_of(tree: object, rank: int) -> Dump | None:
    """The dump in plain data of the documented form; None for other data."""
    if isinstance(tree, list):  # torch 2.2 wrote the entries alone
        tree = {"entries": tree}
    if not isinstance(tree, dict) or not isinstance(tree.get("entries", []), list):
        return None
    if not tree.keys() & {"entries", "pg_status"}:
        return None
    dump = Dump(rank)
    names: dict[str, str] = {}
    for each in tree.get("entries", [])[-MAX_ENTRIES:]:
        if isinstance(each, dict) and (entry := _entry(each, names, dump)) is not None:
            dump.entries.append(entry)
    for key, each in _items(tree.get("pg_config")):
        if members := _members(each.get("ranks")):
            dump.members[key] = members
            dump.descriptions.setdefault(key, _text(each.get("desc")))
    for key, each in _items(tree.get("pg_status")):
        dump.status[names.get(key, key)] = (
            _number(each.get("last_enqueued_collective")) or 0,
            _number(each.get("last_completed_collective")) or 0,
        )
    return dump


def _entry(each: dict[object, object], names: dict[str, str], dump: Dump) -> CollectiveEntry | None:
    """A collective; None for point-to-point operations, which are numbered separately."""
    seq = _number(each.get("collective_seq_id", each.get("seq_id")))
    if each.get("is_p2p") is True or seq is None:
        return None
    named = each.get("process_group")
    pair = [*named[:2], ""] if isinstance(named, list | tuple) and named else [named, ""]
    group = _text(pair[0] if pair[0] is not None else each.get("pg_id"))
    names[_text(each.get("pg_id"))] = group
    dump.descriptions.setdefault(group, _text(pair[1]))
    return CollectiveEntry(group, seq, each.get("state") == "completed", each)


def _members(ranks: object) -> tuple[int, ...]:
    """At most MAX_FILES ranks, which torch writes as a text like `[0, 1]`."""
    if isinstance(ranks, list):
        ranks = ",".join(_text(rank) for rank in ranks[:MAX_FILES])
    # 8: a number of at most seven digits and a comma for each rank.
    found = _RANKS.findall(ranks[: 8 * MAX_FILES]) if isinstance(ranks, str) else ()
    return tuple(map(int, found))


def _frame(frames: object) -> str | None:
    """The innermost frame outside of libraries: the line of the training's code."""
    calls = [
        f"{_text(each.get('name'))} ({_text(each.get('filename'))}:{_number(each.get('line'))})"
        for each in (frames[:_MAX_FRAMES] if isinstance(frames, list) else ())
        if isinstance(each, dict)
    ]
    own = (frame for frame in calls if not any(library in frame for library in _LIBRARIES))
    return next(own, calls[0] if calls else None)


def _sizes(value: object) -> str:
    if not isinstance(value, list | tuple):
        return ""
    shown = (
        "x".join(_text(size) for size in each[:_MAX_TENSORS])
        if isinstance(each, list | tuple)
        else _text(each)
        for each in value[:_MAX_TENSORS]
    )
    return ",".join(shown)


def _items(value: object) -> Iterator[tuple[str, dict[object, object]]]:
    if isinstance(value, dict):
        for key, each in islice(value.items(), MAX_FILES):
            if isinstance(each, dict):
                yield _text(key), each


def _number(value: object) -> int | None:
    """A 64-bit integer; JSON dumps have those of `pg_status` as texts. None for other values."""
    if isinstance(value, str) and len(value) < 19 and value.isdecimal():  # 18 digits fit
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if value.bit_length() < 64 else None


def _text(value: object) -> str:
    """At most `_MAX_TEXT` characters that UTF-8 can encode: a pickle may contain surrogates."""
    return encodable(str(value)[:_MAX_TEXT]) if isinstance(value, str | int | float) else ""
