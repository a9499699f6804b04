"""What a file's first bytes say: which launch wrote it, its run, whether it trains."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ldlm_monitor.parse import clock_marks
from ldlm_monitor.run.identity import RunNames
from ldlm_monitor.source import DIRECT, Disk, LaunchFacts

HEAD_BYTES = 256 * 1024
"""Where a log says which launch it is."""
_DIRECTORY = re.compile(
    rb"^(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d )?Working directory: (\S[^\r\n]*)", re.MULTILINE
)
"""As MM-LDLM's trainer prints it; `ldlm_trainer` puts the time before it."""
_NCCL_FILE = re.compile(rb"\bNCCL_DEBUG_FILE=([^\s'\"]+)")
_RUN_NAME = re.compile(rb"\blogging\.run_name=([^\s'\",\]]+)")
_CALLBACK_SCHEMA = "ldlm.health/"


def launch_facts(log: Path, disk: Disk = DIRECT) -> LaunchFacts:
    """What a log says of its launch, for finding the files that belong to it.

    Raises `TimeoutError` where its server does not answer.
    """
    head = _head(log, disk)
    directory, nccl = (pattern.search(head) for pattern in (_DIRECTORY, _NCCL_FILE))
    return LaunchFacts(
        working_directory=_text(directory[1]) if directory else None,
        run_names=tuple(sorted({_text(name) for name in _RUN_NAME.findall(head)})),
        nccl_debug_file=_text(nccl[1]) if nccl else None,
    )


def has_bars(log: Path, disk: Disk = DIRECT) -> bool:
    """Whether the training loop has begun, by a progress bar near the log's start or end."""
    end = max(disk.stat(log).st_size - HEAD_BYTES, 0)
    blocks = (disk.part(log, 0, HEAD_BYTES), disk.part(log, end, HEAD_BYTES))
    return any(not mark.inner for block in blocks for mark in clock_marks(block))


def name_by_content(path: Path, names: RunNames, disk: Disk = DIRECT) -> None:
    """The callback writes its run's name into the first row of its file: that name counts."""
    if not names.is_tied(str(path)) and (named := callback_run(path, disk)) is not None:
        names.tie(str(path), named)


def callback_run(path: Path, disk: Disk = DIRECT) -> str | None:
    """The run's name as the callback wrote it into a file's first row; None: it did not.

    Raises `TimeoutError` where its server does not answer.
    """
    try:
        header = json.loads(_head(path, disk).split(b"\n", 1)[0])
        ours = header["type"] == "run" and header["schema"].startswith(_CALLBACK_SCHEMA)
        return str(header["run"]) if ours else None
    except (ValueError, LookupError, TypeError, AttributeError):  # it is no header
        return None


def is_rows(path: Path, disk: Disk = DIRECT) -> bool:
    """Whether the file begins like JSON lines. Raises `OSError`."""
    return disk.part(path, 0, 256).lstrip()[:1] == b"{"


def _head(path: Path, disk: Disk) -> bytes:
    try:
        return disk.part(path, 0, HEAD_BYTES)
    except TimeoutError:
        raise
    except OSError:  # reading it reports the error
        return b""


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").strip()
