"""`ldlm-monitor replay FILE...`: finished logs once more, on a virtual clock."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import Parameter

from ldlm_monitor.cli.flags import JudgeFlags, settings_for_inputs
from ldlm_monitor.cli.outcome import exit_code


def replay(
    *files: str,
    form: Annotated[Literal["text", "json"], Parameter(name="--format")] = "text",
    flags: JudgeFlags | None = None,
) -> int:
    """Prints every alert transition that these logs would have caused; tries out --rules.

    Parameters
    ----------
    files
        Files, folders or globs; - is standard input.
    form
        text: a line a transition; json: an object a line.
    """
    found = settings_for_inputs(flags, files, once=True)
    from ldlm_monitor.lines import transition_json, transition_line
    from ldlm_monitor.replay import Replay

    played = Replay(found)
    line = transition_json if form == "json" else transition_line
    for notice in played.notices:
        print(notice, file=sys.stderr)
    for transition in played.transitions():
        sys.stdout.write(line(transition) + "\n")
    return exit_code(played.snapshot(), found.fail_on)
