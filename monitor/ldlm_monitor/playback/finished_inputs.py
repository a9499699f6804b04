"""The finished files that a command names, with what belongs to them, placed in time."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import BinaryIO

from ldlm_monitor.config import Settings
from ldlm_monitor.model.errors import InputError
from ldlm_monitor.playback.history import (
    ALONE_APART_SECONDS,
    EXACT_APART_SECONDS,
    History,
    callback_run,
    launch_facts,
    place,
    place_stream,
)
from ldlm_monitor.run.identity import RunNames, launch_time
from ldlm_monitor.source import Surroundings, companions, resolve, undecided


def gather(
    settings: Settings, names: RunNames, *, apart: float | None = None
) -> tuple[History, list[str]]:
    """The files of the settings, and notices of what was added to them, and why.

    `apart`: seconds within which rows that tell their times count as one piece (None: as
    many as keep the order over all files). Raises `InputError`.
    """
    patterns = resolve(settings.files, base=Path())
    files = patterns.present()
    notices: list[str] = []
    if settings.companions:
        files = _with_companions(files, names, notices)
    if apart is None:
        apart = ALONE_APART_SECONDS if len(files) == 1 else EXACT_APART_SECONDS
    history = place(files, names, apart=apart)
    refuse_unreadable(history)
    streams: list[tuple[str, BinaryIO]] = [
        (str(path), path.open("rb")) for path in patterns.pipes()
    ]
    if patterns.standard_input:
        streams.append(("-", sys.stdin.buffer))
    for name, stream in streams:
        history.files.append(place_stream(name, stream, names, time.time()))
    return history, notices


def refuse_unreadable(history: History) -> None:
    """Raises `InputError` for a file of which something could not be read."""
    for path, error in history.unreadable.items():
        raise InputError(
            f"cannot be read ({error.strerror})",
            where=str(path),
            remedy="check its permissions",
        ) from error


def _with_companions(files: list[Path], names: RunNames, notices: list[str]) -> list[Path]:
    """The files and what belongs to them; of several launches, the newest has a claim."""
    found = {path.resolve(): path for path in files}
    claims: dict[Path, Path] = {}
    around = Surroundings()
    for log in sorted(files, key=lambda path: (launch_time(str(path)) or 0.0, path)):
        facts = launch_facts(log)
        for companion in companions(log, facts, around):
            real = companion.path.resolve()
            claims[real] = log
            if real not in found:
                found[real] = companion.path
                notices.append(f"{companion.path}: added, {companion.reason}")
        if reason := undecided(log, facts, around):
            notices.append(reason)
    for real, log in claims.items():
        run = names.origin(str(log)).run
        names.tie(str(found[real]), run)
        if (told := callback_run(real)) is not None:
            names.rename(run, told)
    return list(found.values())
