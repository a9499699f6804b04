"""What a training loop reports, as its file has it."""

import json
import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_callback.writer import encode


def test_the_first_row_names_the_run_and_the_last_one_how_it_ended(
    health, reported, tmp_path
) -> None:
    callback = health(rank=3, world_size=8, config={"lr": 1e-4, "path": tmp_path})
    callback.on_step(1, loss=2.5)
    callback.close()
    first, step, last = reported(rank=3)
    assert (first["schema"], first["type"], first["run"]) == ("ldlm.health/1", "run", "run_a")
    assert (first["rank"], first["world_size"]) == (3, 8)
    assert first["config"] == {"lr": 1e-4, "path": str(tmp_path)}
    assert (step["type"], step["step"], step["loss"]) == ("step", 1, 2.5)
    assert (last["type"], last["status"], last["error"]) == ("end", "finished", None)


def test_rows_are_written_for_steps_that_every_divides(health, reported) -> None:
    callback = health(every=10)
    for step in range(1, 31):
        callback.on_step(step, loss=1.0)
    callback.close()
    assert [row["step"] for row in reported("step")] == [10, 20, 30]


def test_a_nan_is_written_though_its_step_is_not_due(health, reported) -> None:
    callback = health(every=10)
    for step in range(1, 8):
        callback.on_step(step, loss=math.nan if step == 7 else 1.0)
    callback.close()
    assert [(row["step"], row["loss"]) for row in reported("step")] == [(7, "NaN")]


def test_the_first_loss_that_is_not_finite_is_written_at_once(
    health, reported, monkeypatch, until, tmp_path
) -> None:
    monkeypatch.setattr("ldlm_callback.writer.POLL_SECONDS", 3600.0)
    callback = health()
    callback.on_step(1, loss=1.0)
    callback.on_step(2, loss=math.nan)
    path = tmp_path / "health_rank0.jsonl"
    until(lambda: path.exists() and '"NaN"' in path.read_text())
    assert [row["step"] for row in reported("step")] == [1, 2]


def test_a_nonfinite_component_is_reported_with_its_batch_once_until_it_is_finite(
    health, reported
) -> None:
    callback = health(rank=5)
    for step, value in enumerate([1.0, math.inf, math.nan, 1.0, math.nan]):
        callback.on_step(step, loss=1.0, loss_text=value, accuracy=math.nan, batch=100 + step)
    callback.close()
    events = reported("event", rank=5)
    assert [event["message"] for event in events] == [
        "loss_text is Infinity at step 1, batch 101 on rank 5",
        "loss_text is NaN at step 4, batch 104 on rank 5",
    ]
    assert events[0]["fields"] == {
        "quantity": "loss_text",
        "value": "Infinity",
        "family": "numerics",
        "role": "root",
        "batch": 101,
    }


def test_a_checkpoint_that_raises_failed_and_the_exception_goes_on(health, reported) -> None:
    callback = health()
    with pytest.raises(OSError, match="no room"), callback.phase("checkpoint"):
        raise OSError("no room")
    callback.close()
    assert [event["kind"] for event in reported("event")] == [
        "checkpoint_started",
        "checkpoint_failed",
    ]


def test_time_in_an_evaluation_is_no_part_of_a_step(health, reported, monkeypatch) -> None:
    now = [100.0]
    monkeypatch.setattr("ldlm_callback.steps.monotonic", lambda: now[0])
    callback = health()
    callback.on_step(1)
    now[0] += 0.5
    with callback.phase("eval"):
        now[0] += 60.0
        with callback.phase("data"):
            now[0] += 5.0
    callback.on_step(2)
    monkeypatch.undo()
    callback.close()
    assert [row["step_seconds"] for row in reported("step")[1:]] == [0.5]


def test_a_resumed_run_goes_on_in_the_same_file_after_a_torn_line(
    health, reported, tmp_path
) -> None:
    path = tmp_path / "health_rank0.jsonl"
    path.write_bytes(b'{"type":"step","step":1,"time":1.0}\n{"type":"step","st')
    callback = health()
    callback.on_step(2, loss=1.0)
    callback.close()
    first, torn, *rest = path.read_text().splitlines()
    assert torn == '{"type":"step","st'
    assert [json.loads(row)["type"] for row in (first, *rest)] == ["step", "run", "step", "end"]


def test_events_of_the_users_own_are_written(health, reported) -> None:
    callback = health()
    callback.event("lr_restart", "cosine restart", cycle=2, path=object())
    callback.close()
    (event,) = reported("event")
    assert (event["kind"], event["severity"], event["message"]) == (
        "lr_restart",
        "info",
        "cosine restart",
    )
    assert event["fields"] == {"cycle": 2, "path": "<object>"}


def test_values_are_taken_from_what_holds_them_in_host_memory(health, reported) -> None:
    callback = health()
    callback.on_step(
        1,
        loss=Fraction(1, 4),
        losses={"text": 1, "latent": Decimal("0.5")},
        flag=True,
        words="left out",
        thing=object(),
        time=5.0,
    )
    callback.close()
    (row,) = reported("step")
    kept = {name: value for name, value in row.items() if name not in ("type", "time")}
    assert kept == {"step": 1, "loss": 0.25, "losses_text": 1, "losses_latent": 0.5, "flag": True}
    assert row["time"] > 1e9
    assert reported("end")[0]["values_not_read"] == 3


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.builds(object),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.text(), json_values))
def test_any_row_is_one_line_of_strict_json(row) -> None:
    line = encode(row)

    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert line.count(b"\n") == 1
    assert isinstance(json.loads(line, parse_constant=refuse), dict)


def test_rows_without_a_loss_between_two_nans_do_not_make_the_second_one_news(
    health, reported
) -> None:
    callback = health()
    for step in range(3):
        callback.on_step(step, loss=math.nan)
        callback.log(grad_norm=1.0)
    callback.on_step(3, loss=2.5)
    callback.on_step(4, loss=math.nan)
    callback.close()
    events = [row for row in reported() if row["type"] == "event"]
    assert [event["step"] for event in events] == [0, 4]
