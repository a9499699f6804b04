"""What the first bytes of a file say: its form, its launch, the run that its callback names."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ldlm_monitor.logs.parse import timed_reader_of
from ldlm_monitor.logs.parse.run_names import RunNames
from ldlm_monitor.logs.parse.stamps import stamps
from ldlm_monitor.logs.source.backlog import Backlog
from ldlm_monitor.logs.source.companions import LaunchFacts
from ldlm_monitor.logs.source.file_system import DIRECT, Disk

HEAD_BYTES = 256 * 1024
"""Bytes at a log's start searched for its launch: a choice; 50 times our need, and more is slow."""
_DIRECTORY = re.compile(
    rb"^(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d )?Working directory: (\S[^\r\n]*)", re.MULTILINE
)
"""A line of MM-LDLM's trainer, which names its folder; `ldlm_trainer` puts the time in front."""
_NCCL_FILE = re.compile(rb"\bNCCL_DEBUG_FILE=([^\s'\"]+)")  # names NCCL's log, as `env` prints it
_RUN_NAME = re.compile(rb"\blogging\.run_name=([^\s'\",\]]+)")  # a Hydra override of MM-LDLM
_CALLBACK_SCHEMA = "ldlm.health/"  # `schema` of the callback's first row, up to its version
Form: TypeAlias = Literal["text", "rows", "timed"]
"""What a file holds: text, JSON lines, or records whose reader gives their times."""


def form_of(backlog: Backlog) -> Form:
    """What a file holds, by its name and its first bytes."""
    if timed_reader_of(backlog.path, backlog.head) is not None:
        return "timed"
    return "rows" if backlog.head.lstrip()[:1] == b"{" else "text"


def launch_facts(log: Path, disk: Disk = DIRECT) -> LaunchFacts:
    """Facts in a log that lead to the files of its launch. Raises `TimeoutError` (no answer)."""
    return facts_in(part(log, 0, disk))


def facts_in(head: bytes) -> LaunchFacts:
    """The same of a log's first bytes."""
    # A search for the bare words first: it takes a hundredth of the time.
    directory = _DIRECTORY.search(head) if b"Working directory: " in head else None
    nccl = _NCCL_FILE.search(head) if b"NCCL_DEBUG_FILE=" in head else None
    named = _RUN_NAME.findall(head) if b"logging.run_name=" in head else ()
    return LaunchFacts(
        working_directory=_text(directory[1]) if directory else None,
        run_names=tuple(sorted({_text(name) for name in named})),
        nccl_debug_file=_text(nccl[1]) if nccl else None,
    )


def name_by_content(path: Path, names: RunNames, disk: Disk = DIRECT) -> None:
    """Tie an untied file of the callback to the run in its first row. Raises `TimeoutError`."""
    if not names.is_tied(str(path)) and (named := callback_run(path, disk)) is not None:
        names.tie(str(path), named)


def callback_run(path: Path, disk: Disk = DIRECT) -> str | None:
    """The run in a callback's first row; None for any other file. Raises `TimeoutError`."""
    header = callback_header(part(path, 0, disk))
    return None if header is None else str(header["run"])


def callback_header(head: bytes) -> dict[str, Any] | None:
    """The callback's first row in a file's first bytes, with a `run`; None for any other file."""
    try:
        header: dict[str, Any] = json.loads(head.split(b"\n", 1)[0])
        ours = header["type"] == "run" and header["schema"].startswith(_CALLBACK_SCHEMA)
        return header if ours and header["run"] is not None else None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None  # not the callback's first row: other fields, no JSON, or nested too deep


def moments(text: bytes) -> Iterator[float]:
    """The dates and times of lines (Unix seconds), without a zone in this host's."""
    for stamp in stamps(text):
        if stamp.has_year and stamp.zoned:
            yield stamp.when
        elif stamp.has_year:
            with suppress(ValueError, OverflowError):  # of a year that this host's zone has not
                yield datetime.fromtimestamp(stamp.when, UTC).replace(tzinfo=None).timestamp()


def part(path: Path, start: int, disk: Disk) -> bytes:
    """Up to `HEAD_BYTES` of a file from `start` on; none if unreadable. Raises `TimeoutError`."""
    try:
        return disk.part(path, start, HEAD_BYTES)
    except TimeoutError:
        raise
    except OSError:  # the error is reported where the file is followed
        return b""


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").strip()
