"""`replay` and `demo`: finished logs and recordings, played on a virtual clock."""

from __future__ import annotations

import math
import sys
import tempfile
from functools import partial
from importlib.resources import as_file
from importlib.resources import files as files_of
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from ldlm_monitor.base.errors import INTERRUPTED, UsageError
from ldlm_monitor.service.cli.flags import (
    ReplayFlags,
    ScreenFlags,
    exit_code,
    replay_of,
    settings,
    settings_for_inputs,
)
from ldlm_monitor.service.cli.follow import require_terminal, show_screen
from ldlm_monitor.service.cli.reading import Reading, read_to_end

if TYPE_CHECKING:
    from ldlm_monitor.service.config import Settings

SPEED = 10.0
"""Seconds of the recording in one second. A choice: 450 s take 45; faster is hard to read."""
RECORDING = "demo.jsonl.gz"  # packaged in playback/
_Speed = Annotated[float, Parameter(validator=Number(gt=0, lt=math.inf))]


def replay(
    *files: str,
    form: Annotated[Literal["text", "json"], Parameter(name="--format")] = "text",
    truth: Path | None = None,
    decide: bool = False,
    tui: bool = False,
    speed: _Speed | None = None,
    flags: ReplayFlags | None = None,
) -> int:
    """Prints every alert transition that these logs would have caused; tries out --rules.

    Args:
        files: Files, folders or globs; - is standard input.
        form: text: a line a transition; json: an object a line (with --truth: one object).
        truth: JSON file that says what happened in each log: prints recall, precision and time to
            detect instead. Each log is judged as a run of its own, without companions.
        decide: Print what to do about each run instead; with --truth, how often that is right.
        tui: Play them on the screen instead; FILE may also be what --record wrote.
        speed: With --tui: seconds of the logs in one second (default: all of it in two minutes).
    """
    if truth is not None and flags is not None and flags.companions:
        raise UsageError(
            "--companions does not go with --truth",
            where="replay",
            remedy="leave it out: the truth describes each log without its companions",
        )
    found = settings_for_inputs(flags, files, once=True)
    recording = _recording_among(found.files)
    if tui:
        return _on_screen(found, recording, truth, form, speed)
    if speed is not None or recording is not None:
        raise UsageError(
            "is only for the screen",
            where="--speed" if recording is None else str(recording),
            remedy="add --tui",
        )
    if decide:
        return _decide(found, truth, form)
    if truth is not None:
        return _score(found, truth, form)
    from ldlm_monitor.base.text.lines import transition_json, transition_line

    played = replay_of(found)
    line = transition_json if form == "json" else transition_line
    with Reading(played.history) as reading:
        for transition in played.transitions():
            if form == "json" or not transition.is_heartbeat:
                reading.print(line(transition))
    reading.say_part()
    return INTERRUPTED if reading.is_interrupted else exit_code(played.snapshot(), found.fail_on)


def demo(*, speed: _Speed = SPEED, flags: ScreenFlags | None = None) -> int:
    """Plays three recorded trainings: a NaN, a slow rank, and one that hangs.

    Args:
        speed: Seconds of the trainings in one second; < and > change it.
    """
    with as_file(files_of("ldlm_monitor.finished.playback") / RECORDING) as recording:
        return _play(settings(flags), recording, name="demo", speed=speed)


def _on_screen(
    found: Settings, recording: Path | None, truth: Path | None, form: str, speed: float | None
) -> int:
    if truth is not None or form != "text" or "-" in found.files:
        raise UsageError(
            "goes neither with --truth or --format nor with standard input",
            where="--tui",
            remedy="leave one of them out",
        )
    name = found.files[0] if len(found.files) == 1 else f"{len(found.files)} inputs"
    return _play(found, recording, name=name, speed=speed)


def _score(found: Settings, truth: Path, form: str) -> int:
    from ldlm_monitor.finished.backtest.play import backtest, score_text
    from ldlm_monitor.finished.backtest.score import overall

    played = list(backtest(found, truth))
    scores = overall([score for score, _ in played])
    as_json = form == "json"
    sys.stdout.write(scores.model_dump_json(indent=2) + "\n" if as_json else score_text(scores))
    return max((exit_code(snapshot, found.fail_on) for _, snapshot in played), default=0)


def _decide(found: Settings, truth: Path | None, form: str) -> int:
    from ldlm_monitor.base.text.sanitize import plain
    from ldlm_monitor.finished.backtest import decision_score

    if truth is not None:
        score = decision_score.score_decisions(found, truth)
        lines = decision_score.decision_score_text(score)
        print(score.model_dump_json(indent=2) if form == "json" else "\n".join(map(plain, lines)))
        return 0
    snapshot, is_interrupted = read_to_end(replay_of(found))
    for run in snapshot.runs:
        if form == "json":
            print(decision_score.decision_json(run))
            continue
        decided = decision_score.decision_of(run)
        print(plain(f"{run.name}: {decided.phrase}"))
        for place in decided.evidence:
            print(plain(f"    {place.path}:{place.line}"))
        print(f"    if wrong: {decided.if_wrong}")
    return INTERRUPTED if is_interrupted else exit_code(snapshot, found.fail_on)


def _play(found: Settings, recording: Path | None, *, name: str, speed: float | None) -> int:
    """Plays `recording`, or if None the settings' files, on the screen; returns the exit code."""
    require_terminal(name, "run it in an interactive shell")
    from ldlm_monitor.finished.playback.engine import Playback, Showing
    from ldlm_monitor.finished.playback.timed_inputs import of_logs, of_recording
    from ldlm_monitor.service.daemon.local_source import LocalSource
    from ldlm_monitor.service.notify.silences import Silences

    with tempfile.TemporaryDirectory(prefix="ldlm-monitor-") as folder:
        if recording is None:
            load = partial(of_logs, found)
        else:
            load = partial(of_recording, recording, found, Path(folder))
        showing = Showing(Playback(load, speed))
        silences = Silences(Path(folder) / "silences.sqlite")
        source = LocalSource(
            showing.snapshot, silences, name, clock=showing.clock, opened=showing.opened
        )
        showing.start()
        try:
            return show_screen(
                source,
                found,
                ended=lambda: showing.has_failed,
                clock=showing.clock,
                player=showing,
            )
        finally:
            showing.close()
            silences.close()


def _recording_among(files: tuple[str, ...]) -> Path | None:
    """The recording among `files`; None if all are logs. Raises `UsageError` for a mixture."""
    from ldlm_monitor.finished.playback.recording import is_recording

    found = [Path(file) for file in files if is_recording(Path(file))]
    if found and len(files) > 1:
        raise UsageError(
            "a recording is played alone", where=str(found[0]), remedy="name it and nothing else"
        )
    return found[0] if found else None
