"""A transition as `replay` prints it."""

import json
import math
from dataclasses import replace

import pytest

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.records import Position
from ldlm_monitor.base.text.lines import transition_json, transition_line
from ldlm_monitor.base.text.sanitize import plain

FIRING = Transition(
    time=1769681700.25,
    alert="NonFiniteLoss",
    state="firing",
    previous="inactive",
    reason="condition holds",
    labels={"severity": "critical", "run": "gpt2", "rank": "1"},
    annotations={"summary": "The loss is NaN.", "action": "Stop."},
    value=math.nan,
    position=Position("train.log", 250, 9000),
    active_at=1769681700.25,
    step=877,
    line="loss nan",
)


def test_json_is_the_public_form_and_nothing_else() -> None:
    assert json.loads(transition_json(FIRING), parse_constant=None) == {
        "time": 1769681700.25,
        "alert": "NonFiniteLoss",
        "state": "firing",
        "reason": "condition holds",
        "labels": {"severity": "critical", "run": "gpt2", "rank": "1"},
        "annotations": {"summary": "The loss is NaN.", "action": "Stop."},
        "value": "NaN",
        "position": {"path": "train.log", "line": 250, "offset": 9000},
    }


def test_json_has_null_where_nothing_is_known_and_infinities_as_text() -> None:
    shown = json.loads(transition_json(replace(FIRING, time=None, position=None, value=-math.inf)))
    assert (shown["time"], shown["position"], shown["value"]) == (None, None, "-Infinity")


def test_json_is_one_line_whatever_the_log_said() -> None:
    text = transition_json(replace(FIRING, annotations={"summary": "a\nb\u2028c"}))
    assert text.count("\n") == 0
    assert json.loads(text)["annotations"]["summary"] == "a\nb\nc"


def test_text_is_one_line_to_read() -> None:
    assert transition_line(FIRING) == (
        "2026-01-29T10:15:00.250Z  FIRING    NonFiniteLoss         critical  gpt2/1  "
        "The loss is NaN.  train.log:250"
    )


def test_text_columns_line_up() -> None:
    ended = replace(FIRING, time=None, state="ended", alert="OutOfMemory")
    assert transition_line(ended).startswith(
        "- " + " " * 24 + "ENDED     OutOfMemory           critical"
    )
    assert transition_line(FIRING).index("critical") == transition_line(ended).index("critical")


def test_text_holds_no_control_character() -> None:
    hostile = replace(FIRING, annotations={"summary": "a\x1b[2Jb\r\nc\x07"})
    assert transition_line(hostile).isprintable()


@pytest.mark.parametrize("run", ["gpt2", "two\nlines", "a\tb", "xoxb-123456789012-abcdefghijkl"])
@pytest.mark.parametrize("between", [": ", " "])
def test_text_names_the_run_once(run: str, between: str) -> None:
    labels = {"severity": "critical", "run": run}
    summary = f"{run}{between}is in trouble"
    line = transition_line(replace(FIRING, labels=labels, annotations={"summary": summary}))
    assert line.split("  ")[-2] == "is in trouble"
    assert line.count(plain(run)) == 1


def test_a_summary_that_only_begins_like_the_run_is_kept_whole() -> None:
    line = transition_line(replace(FIRING, annotations={"summary": "gpt2xl is in trouble"}))
    assert "gpt2xl is in trouble" in line


def test_json_is_utf8_whatever_the_log_said() -> None:
    """Lone surrogates: from a file's name that is no UTF-8, or from an escape in JSON."""
    labels = {"severity": "critical", "run": "a\udcffb\ud800c"}
    text = transition_json(replace(FIRING, labels=labels))
    assert json.loads(text.encode("utf-8"))["labels"]["run"] == "a\ufffdb\ufffdc"


def test_the_secrets_of_run_and_rank_are_hidden_each_alone() -> None:
    """Joined, the first one's value would go on behind the stroke, and take the other's name."""
    labels = {
        "run": "export AWS_SECRET_ACCESS_KEY=ZIsdP0f4fVJIJ6+1ccuMbWa/kWXpTiKnaRr5i1C4",
        "rank": "--db-password mMHsHQAA4acV",
    }
    line = transition_line(replace(FIRING, labels={**FIRING.labels, **labels}))
    assert "mMHsHQAA4acV" not in line
    assert "ZIsdP0f4" not in line
