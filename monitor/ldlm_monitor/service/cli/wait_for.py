"""`ldlm-monitor wait-for [RUN]`: block until a run needs somebody, and say why as JSON."""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.service.cli.flags import UNHEALTHY, WaitFlags, settings, settings_for_inputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from ldlm_monitor.base.queries import Source
    from ldlm_monitor.service.config import Settings
    from ldlm_monitor.service.mcp.awaited import Awaited, Until

TIMED_OUT: Final = 124
"""Exit code where nothing came in time, as timeout(1) has it."""
TERMINATED: Final = 143
"""Exit code after SIGTERM, with no answer: 128 + 15, as shells report it; Ctrl-C has its own."""
NOTICE_SECONDS: Final = 10.0  # until a run that nobody knows is said to be waited for. A choice


def wait_for(
    *run_or_files: str,
    until: str = "decision",
    timeout: float = math.inf,
    url: str | None = None,
    flags: WaitFlags | None = None,
) -> int:
    """Waits until a run needs a decision, and prints what, where and what to do as JSON.

    Asks a running monitor: that of --url, of `ldlm-monitor run --run RUN`, or the one on the usual
    address. With files it follows these itself; it notifies nobody.

    Exit code: 0 finished, or the step was reached; 3 a decision, an alert, or an end that is none
    of a finished run; 124 nothing came in time; 130 or 143 it was stopped.

    Args:
        run_or_files: A run's name (default: every run), and files, folders or quoted globs.
        until: What to wait for: decision, alert, finished or step=N. A decision ends each of them.
        timeout: Most seconds to wait (default: no limit).
        url: A running monitor, such as http://127.0.0.1:9847.
    """
    from ldlm_monitor.service.mcp.awaited import Until

    wanted = Until.read(until)
    if not timeout >= 0:
        raise UsageError("is no time to wait", where=f"--timeout {timeout}", remedy="give seconds")
    name, files = _split(run_or_files)
    found = settings(flags)
    if url is None and not files:
        url, files = _known(name, found)
    if url is not None:
        if files:
            raise UsageError("goes not with files", where="--url", remedy="name one or the other")
        return _ask(url, name, wanted, timeout, found)
    return _follow(settings_for_inputs(flags, files), name, wanted, timeout)


def _split(words: tuple[str, ...]) -> tuple[str, list[str]]:
    """The run's name ("" without one) and the files: a first word that looks like none is a run."""
    if not words:
        return "", []
    from ldlm_monitor.logs.source.input_patterns import LOG_SUFFIXES

    first, *rest = words
    named = Path(first)
    is_file = named.suffix in LOG_SUFFIXES or named.exists() or first == "\0-"
    is_file = is_file or not set(first).isdisjoint("/*?[")
    return ("", list(words)) if is_file else (first, rest)


def _known(name: str, found: Settings) -> tuple[str | None, list[str]]:
    """Where the run is watched: a monitor's URL, or files to follow. Raises UsageError."""
    from ldlm_monitor.host.supervise.run_folder import find_run
    from ldlm_monitor.service.state.state_dir import announced

    record = find_run(name) if name else None
    if record is not None:
        address = announced(record.folder / "state")
        return address, [] if address else [*record.files]
    host, port = found.listen_address
    usual = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    if _answers(usual):
        return usual, []
    if found.files:
        return None, [*found.files]
    raise UsageError(
        f"no monitor answers at {usual}",
        where=f"wait-for {name}".strip(),
        remedy="name files to follow, or the monitor's address by --url",
    )


def _answers(url: str) -> bool:
    from urllib.error import URLError
    from urllib.request import ProxyHandler, build_opener

    try:
        with build_opener(ProxyHandler({})).open(f"{url}/-/healthy", timeout=2.0):
            return True
    except (URLError, OSError, ValueError):
        return False


def _ask(url: str, name: str, until: Until, timeout: float, found: Settings) -> int:
    from ldlm_monitor.screen.remote import RemoteSource
    from ldlm_monitor.service.cli.attach import authorization, tls

    source = RemoteSource(url, authorization=authorization(found.attach), tls=tls(found.attach))
    source.start()
    try:
        return _wait(source, name, until, timeout, lambda: False)
    finally:
        source.stop()


def _follow(found: Settings, name: str, until: Until, timeout: float) -> int:
    """Follow the files as the main command does, but unseen: no receiver, a port of its own."""
    from ldlm_monitor.service.cli import logs
    from ldlm_monitor.service.cli.opening import Opening
    from ldlm_monitor.service.notify.receivers import RECEIVERS

    logs.configure(found.model_copy(update={"log_level": "warning"}))
    with tempfile.TemporaryDirectory(prefix="ldlm-monitor-") as folder:
        apart = {kind.table: kind.model_construct() for kind in RECEIVERS}
        own = {"state_dir": Path(folder) / "state", "listen": "127.0.0.1:0", "web_config": None}
        seen = found.model_copy(update={**apart, **own, "file_sd": None, "record": None})
        opening = Opening(seen, lambda: seen, has_screen=True)
        opening.start()
        code = 0
        try:
            code = _wait(cast("Source", opening), name, until, timeout, opening.ended)
        finally:
            code, _ = opening.close(code)
    return code


def _wait(
    source: Source, name: str, until: Until, timeout: float, ended: Callable[[], bool]
) -> int:
    from ldlm_monitor.service.mcp.awaited import LOOK_SECONDS, awaited, timed_out

    began, is_said, gone = time.monotonic(), False, ""
    while not ended():
        snapshot = source.snapshot()
        if (came := awaited(snapshot, name, until)) is not None:
            return _print(came)
        waited = time.monotonic() - began
        if waited >= timeout:
            return _print(timed_out(snapshot, name, timeout))
        is_known = any(name in ("", run.name) for run in snapshot.runs)
        if not is_known and not is_said and snapshot.reading is None and waited > NOTICE_SECONDS:
            is_said = True
            others = ", ".join(run.name for run in snapshot.runs[:5]) or "none"
            print(f"waiting for {name or 'a run'}; known runs: {others}", file=sys.stderr)
        if source.problem and not gone:
            print(f"{source.name}: {source.problem}; waiting for its answer", file=sys.stderr)
        gone = source.problem
        time.sleep(min(LOOK_SECONDS, max(timeout - waited, 0.0)))
    return TERMINATED


def _print(came: Awaited) -> int:
    from ldlm_monitor.base.text.sanitize import jsonable

    print(json.dumps(jsonable(came.answer), ensure_ascii=False))
    return 0 if came.is_well else TIMED_OUT if came.kind == "timeout" else UNHEALTHY
