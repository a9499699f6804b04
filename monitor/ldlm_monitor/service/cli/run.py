"""`ldlm-monitor run -- COMMAND...` and `stop NAME`: a training, watched from its start."""

from __future__ import annotations

import os
import shlex
import sys
import time
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Literal, cast

from cyclopts import Parameter

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.base.names import ENDED_STATES
from ldlm_monitor.service.cli.flags import FollowFlags, settings, shown_dash

if TYPE_CHECKING:
    from ldlm_monitor.base.queries import Source
    from ldlm_monitor.base.snapshot import Snapshot
    from ldlm_monitor.host.supervise.launch import Front
    from ldlm_monitor.host.supervise.run_folder import RunRecord
    from ldlm_monitor.host.supervise.run_session import RunSession
    from ldlm_monitor.service.cli.opening import Opening
    from ldlm_monitor.service.config import Settings

MONITOR_LOG = "monitor.log"  # in the run's folder
SETTLE_SECONDS = 60.0
"""Most seconds after the command's end until its monitor ends: twice what confirms a crash."""
SEND_SECONDS = 30.0
"""Seconds that the monitor's end waits for receivers, three times what one may take to answer:
nobody waits for this process, and no next start sends what they did not get."""
HURRY_SECONDS = 10.0
"""Both, after a SIGTERM: Slurm (KillWait) and Kubernetes (terminationGracePeriodSeconds) kill all
that is left 30 s after it, and the command needs some of them."""


def run(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    on: tuple[str, ...] = (),
    budget: str = "5/24h",
    resume_command: str = "",
    slurm: Literal["print", "requeue"] = "print",
    log_dir: Path = Path("train_logs"),
    screen: bool = False,
    detach: bool = False,
    flags: FollowFlags | None = None,
) -> int:
    """Runs a training command as if typed alone, keeps its output, and watches it.

    Bytes, terminal, signals and exit code are the command's own. It goes on if the monitor is
    killed; `attach NAME` shows it, `stop NAME` ends it, `report NAME` says how it was.

    Args:
        command: The command and its arguments, after --.
        on: What to do about a failure, such as hang=stacks,kill, nan=stop or crash=restart:3;
            repeatable (default: watch alone).
        budget: Most restarts in a time, such as 5/24h.
        resume_command: What a restart runs instead of the command, as a shell would split it.
        slurm: With requeue, a restart in a job requeues it, and one of sbatch leaves out the nodes
            that failed; otherwise the commands for it are printed into the log.
        log_dir: Folder of the log NAME_TIME.log.
        screen: Show the monitor's screen instead of the command's output.
        detach: Return at once; the run goes on in the background.
    """
    from ldlm_monitor.host.supervise import launch, run_folder
    from ldlm_monitor.host.supervise.reactions import Reactions, Supervisor
    from ldlm_monitor.host.supervise.run_session import RunSession
    from ldlm_monitor.service.cli.follow import require_terminal

    words = shown_dash(command)
    reactions = Reactions.read(on, budget)
    if screen:
        require_terminal("--screen", "leave it out, and attach to the run from a terminal")
    settings(flags)  # a mistake in the settings ends this before the command starts
    chosen = (flags.run if flags else None) or run_folder.name_of(words)
    record, front, watching = launch.start(words, chosen, log_dir, echo=not (screen or detach))
    if detach and _left(record.name):
        return 0
    files = (record.log, str(record.folder / run_folder.JOBS))
    found = settings(flags, files, run=record.name, state_dir=record.folder / "state")
    session = RunSession(
        record,
        watching,
        Supervisor(reactions, record.name, record.started_at),
        again=tuple(shlex.split(resume_command)) or words,
        requeues=slurm == "requeue",
    )
    if screen:
        return _on_screen(session, front, record, found)
    monitor = os.fork()
    if monitor == 0:
        front.close()
        return _watch_apart(session, record, found)
    watching.close()
    code = front.wait(words[0])
    front.wait_for_monitor(monitor, SETTLE_SECONDS + SEND_SECONDS)
    return code


def _on_screen(session: RunSession, front: Front, record: RunRecord, found: Settings) -> int:
    from logging import FileHandler

    from ldlm_monitor.screen.app import MonitorApp
    from ldlm_monitor.service.cli import logs
    from ldlm_monitor.service.cli.opening import Opening
    from ldlm_monitor.service.daemon.stop_signals import leave_lost_terminal

    logs.configure(found, FileHandler(record.folder / MONITOR_LOG))
    opening = Opening(found, lambda: found, has_screen=True, send_seconds=SEND_SECONDS)
    following = Thread(target=_follow, args=(session, opening, record, found), name="session")
    app = MonitorApp(
        cast("Source", opening),
        ascii_only=True if found.ascii else None,
        ended=lambda: not following.is_alive(),
        look=found.screen,
    )
    front.take_signals(leave_lost_terminal)  # the command's, not the screen's or the daemon's
    opening.start()
    following.start()
    app.run()
    front.take_signals()  # job control, which the screen had
    if session.exit_code is None:  # a closed screen does not end the command
        said = f"{record.name} goes on; Ctrl-C ends it, ldlm-monitor attach {record.name} shows it"
        print(said, file=sys.stderr)
    code = front.wait(record.command[0])
    following.join()
    _finish(session, opening, record)
    return code


def _watch_apart(session: RunSession, record: RunRecord, found: Settings) -> int:
    """Watch the run in this process, which nobody waits for; its own exit code."""
    _leave_terminal(record.folder / MONITOR_LOG)
    from ldlm_monitor.service.cli import logs
    from ldlm_monitor.service.cli.opening import Opening

    logs.configure(found)
    # A scheduler's SIGTERM to all processes is the command's: its end is yet to be reported.
    opening = Opening(found, lambda: found, send_seconds=SEND_SECONDS, outlasts=True)
    opening.start()
    _follow(session, opening, record, found)
    _finish(session, opening, record)
    return 0


def _follow(session: RunSession, opening: Opening, record: RunRecord, found: Settings) -> None:
    """Act until the command is over, complete the run's record, and wait until that is judged.

    A crash counts when no step follows, and then a rule fires. The end of this monitor ends it.
    """
    from ldlm_monitor.host.supervise import run_folder, started_in

    asking = Thread(target=started_in.describe, args=(record,), name="started_in")
    asking.start()
    while session.exit_code is None and not opening.ended():
        session.turn(partial(_judged, opening))
    session.close()
    asking.join()
    if session.exit_code is not None:
        run_folder.keep(record, exit_code=session.exit_code, ended_at=time.time())
    until = time.monotonic() + (HURRY_SECONDS if _hurries(session) else SETTLE_SECONDS)
    while not opening.ended() and time.monotonic() < until:
        judged = _judged(opening)
        if judged is not None and all(run.state in ENDED_STATES for run in judged.runs):
            until = min(until, time.monotonic() + found.evaluation_interval + 1)
        time.sleep(0.2)


def _judged(opening: Opening) -> Snapshot | None:
    """The last snapshot; None while history is read."""
    found = opening.snapshot()
    return found if found.reading is None else None


def _hurries(session: RunSession) -> bool:
    return session.asked_by == "SIGTERM"


def _finish(session: RunSession, opening: Opening, record: RunRecord) -> None:
    """End the daemon, which sends what is due, and keep its report."""
    from ldlm_monitor.finished.report.plain_text import health_report

    _, snapshot = opening.close(0, send_seconds=HURRY_SECONDS if _hurries(session) else None)
    if snapshot is not None:
        (record.folder / "report.txt").write_text(health_report(snapshot), encoding="utf-8")


def _left(name: str) -> bool:
    """Go on in the background, apart from the terminal; True in the process that returns."""
    if os.fork():
        print(f"{name}: runs; see it with `ldlm-monitor attach {name}`")
        return True
    _leave_terminal(Path(os.devnull))
    return False


def _leave_terminal(path: Path) -> None:
    """Begin a session of our own, which prints into a file and has no input."""
    os.setsid()
    with path.open("ab") as file, Path(os.devnull).open("rb") as nowhere:
        for number, stream in enumerate((nowhere, file, file)):
            os.dup2(stream.fileno(), number)


def stop(name: str, /) -> int:
    """Ends a run's command with SIGTERM.

    Args:
        name: The run, as `ldlm-monitor run` called it; without the time, the newest of that name.
    """
    from ldlm_monitor.host.supervise.streams import STOP

    record = named_run(name)
    if not record.is_running:
        raise UsageError("is over", where=name, remedy="`ldlm-monitor report` shows how it ended")
    os.kill(record.relay, STOP)
    return 0


def named_run(name: str) -> RunRecord:
    """The run of this name; raises `UsageError` if there is none."""
    from ldlm_monitor.host.supervise.run_folder import find_run

    record = find_run(name)
    if record is None:
        raise UsageError(
            "no run has this name", where=name, remedy="`ls train_logs` has the names of runs"
        )
    return record
