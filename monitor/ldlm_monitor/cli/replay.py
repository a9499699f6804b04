"""`ldlm-monitor replay FILE...`: finished logs once more, on a virtual clock."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from ldlm_monitor.cli.flags import ReplayFlags, settings_for_inputs
from ldlm_monitor.cli.outcome import exit_code
from ldlm_monitor.cli.screen import recording_among
from ldlm_monitor.model.errors import UsageError

if TYPE_CHECKING:
    from ldlm_monitor.config import Settings


def replay(
    *files: str,
    form: Annotated[Literal["text", "json"], Parameter(name="--format")] = "text",
    truth: Path | None = None,
    tui: Annotated[bool, Parameter(negative="")] = False,
    speed: float | None = None,
    flags: ReplayFlags | None = None,
) -> int:
    """Prints every alert transition that these logs would have caused; tries out --rules.

    Parameters
    ----------
    files
        Files, folders or globs; - is standard input.
    form
        text: a line a transition; json: an object a line (with --truth: one object).
    truth
        JSON file that says what happened in each log: prints recall, precision and time
        to detect instead. Each log is judged as a run of its own, without companions.
    tui
        Play them on the screen instead; FILE may also be what --record wrote.
    speed
        With --tui: seconds of the logs in one second (default: all of it in two minutes).
    """
    if truth is not None and flags is not None and flags.companions:
        raise UsageError(
            "--companions does not go with --truth",
            where="replay",
            remedy="leave it out: what is known of a log is known of it alone",
        )
    found = settings_for_inputs(flags, files, once=True)
    recording = recording_among(found.files)
    if tui:
        return _on_screen(found, recording, truth, form, speed)
    if speed is not None or recording is not None:
        raise UsageError(
            "is for the screen",
            where="--speed" if recording is None else str(recording),
            remedy="add --tui",
        )
    if truth is not None:
        return _score(found, truth, form)
    from ldlm_monitor.playback.replay import Replay
    from ldlm_monitor.text.lines import transition_json, transition_line

    played = Replay(found)
    line = transition_json if form == "json" else transition_line
    for notice in played.notices:
        print(notice, file=sys.stderr)
    for transition in played.transitions():
        if form == "json" or not transition.is_heartbeat:
            sys.stdout.write(line(transition) + "\n")
    return exit_code(played.snapshot(), found.fail_on)


def _on_screen(
    found: Settings, recording: Path | None, truth: Path | None, form: str, speed: float | None
) -> int:
    from ldlm_monitor.cli.screen import play

    if truth is not None or form != "text" or "-" in found.files:
        raise UsageError(
            "goes neither with --truth or --format nor with standard input",
            where="--tui",
            remedy="leave one of them out",
        )
    name = found.files[0] if len(found.files) == 1 else f"{len(found.files)} inputs"
    return play(found, recording, name=name, speed=speed)


def _score(found: Settings, truth: Path, form: str) -> int:
    """Prints how the alerts fare against what is known; the worst log decides the exit code."""
    from ldlm_monitor.analysis.backtest.play import backtest, score_text
    from ldlm_monitor.analysis.backtest.score import overall

    played = list(backtest(found, truth))
    scores = overall([score for score, _ in played])
    as_json = form == "json"
    sys.stdout.write(scores.model_dump_json(indent=2) + "\n" if as_json else score_text(scores))
    return max((exit_code(snapshot, found.fail_on) for _, snapshot in played), default=0)
