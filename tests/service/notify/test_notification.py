"""A transition in words that may leave the machine."""

import math

from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.records import Position
from ldlm_monitor.service.notify.message import (
    MAX_TEXT,
    Notification,
    from_json,
    from_transition,
    to_json,
)

KEY = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"


def a_transition(**changes: object) -> Transition:
    fields = {
        "time": 1_700_000_030.0,
        "alert": "NonFiniteLoss",
        "state": "firing",
        "previous": "pending",
        "reason": "condition holds",
        "labels": {"run": "r1", "rank": "3", "severity": "critical"},
        "annotations": {"summary": "s", "description": "d", "action": "a"},
        "value": float("nan"),
        "position": Position("logs/a.log", 17, 2048),
        "active_at": 1_700_000_000.0,
        "step": 120,
        "line": "loss: nan",
    }
    return Transition(**{**fields, **changes})


def test_it_has_what_where_and_since_when():
    transition = a_transition()
    made = from_transition(transition)
    assert made.key == transition.key
    assert (made.alert, made.state, made.severity) == ("NonFiniteLoss", "firing", "critical")
    assert (made.run, made.rank, made.step) == ("r1", "3", 120)
    assert (made.line, made.path, made.line_number) == ("loss: nan", "logs/a.log", 17)
    assert (made.summary, made.description, made.action) == ("s", "d", "a")
    assert (made.started_at, made.at) == (1_700_000_000.0, 1_700_000_030.0)


def test_what_is_not_known_is_none():
    made = from_transition(
        a_transition(time=None, position=None, line=None, step=None, labels={}, annotations={})
    )
    assert (made.line, made.path, made.line_number) == (None, None, None)
    assert (made.run, made.rank, made.severity, made.summary) == ("", None, "none", "")


def test_secrets_are_gone_before_it_is_stored_and_before_it_is_cut():
    line = "x" * (MAX_TEXT - 10) + " " + KEY
    made = from_transition(
        a_transition(
            line=line,
            labels={"run": f"r-{KEY}"},
            annotations={"summary": f"\x1b[1m{KEY}", "action": f"password={KEY}"},
            position=Position(f"logs/{KEY}.log", 1, 0),
        )
    )
    assert KEY[:12] not in to_json(made)
    assert made.line is not None
    assert len(made.line) <= MAX_TEXT


@given(
    line=st.text(alphabet=st.characters(categories=["L", "N", "P", "S", "Z", "C"])),
    value=st.floats(),
    at=st.none() | st.floats(allow_nan=False),
)
def test_it_comes_back_from_json_as_it_was(line, value, at):
    made = from_transition(a_transition(line=line, value=value, time=at))
    back = from_json(Notification, to_json(made))
    assert math.isnan(back.value) if math.isnan(value) else back == made


def test_text_that_is_no_notification_is_refused():
    assert from_json(Notification, '{"key": "k"}') is None
