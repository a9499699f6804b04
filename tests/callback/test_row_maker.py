"""What a row has of a step: durations, rates, counts, values from elsewhere, and nothing twice."""

import math
from typing import Any

import pytest

from ldlm_callback.checksums import PREFIX
from ldlm_callback.device import SLOTS
from ldlm_callback.rank import Beat
from ldlm_callback.rows import (
    LARGEST,
    MAX_NAME,
    MAX_VALUES,
    Rows,
    gather,
    nonfinite,
    spelled,
    whole,
)
from ldlm_callback.steps import Steps


class Made:
    """Rows of entries, each a step 2 s after the one before where nothing else is said."""

    def __init__(self, every: int = 1) -> None:
        self.alarms = 0
        self.rows = Rows(3, every, self._alarm)
        self.at = 100.0

    def _alarm(self) -> None:
        self.alarms += 1

    def step(
        self, number: int, *, after: float = 2.0, paused: float = 0.0, data: "float | None" = None,
        samples: Any = None, tokens: Any = None, batch: Any = None, ids: Any = None,
        more: bool = False, **given: Any,
    ) -> "list[dict[str, Any]]":  # fmt: skip
        self.at += after
        moment = None if more else self.at
        entry = (number, 1e9, moment, paused, data, given, samples, tokens, batch, ids)
        return self.rows.make(entry)


def test_a_row_has_the_time_of_a_step_without_pauses_and_of_its_data() -> None:
    made = Made()
    (first,) = made.step(10, loss=2.5, data=4.0)
    assert first == {"type": "step", "step": 10, "time": 1e9, "loss": 2.5, "data_seconds": 4.0}
    (second,) = made.step(12, after=50.0, paused=40.0, data=5.5)
    assert (second["step_seconds"], second["data_seconds"]) == (5.0, 1.5)
    (resumed,) = made.step(11)
    assert "step_seconds" not in resumed


def test_counts_are_summed_and_given_as_rates_of_all_steps_since() -> None:
    made = Made()
    (first,) = made.step(1, samples=8, tokens=64)
    assert (first["samples_total"], first["tokens_total"]) == (8, 64)
    assert "samples_per_second" not in first
    (second,) = made.step(5, after=4.0, samples=8)
    assert (second["samples_total"], second["samples_per_second"]) == (16, 2.0)
    assert "tokens_total" not in second
    (third,) = made.step(6, after=0.0, samples=8)
    assert "samples_per_second" not in third
    (fourth,) = made.step(7, samples="many", batch=3)
    assert (fourth["samples_total"], fourth["batch"]) == (24, 3)


def test_what_the_driver_sampled_stands_in_the_next_row_alone() -> None:
    made = Made(every=2)
    made.rows.extra = {"gpu_power_watts": 300.0}
    assert made.step(1) == []
    (row,) = made.step(2)
    assert row["gpu_power_watts"] == 300.0
    assert made.rows.latest is row
    (row,) = made.step(4)
    assert "gpu_power_watts" not in row
    (row,) = made.step(5, more=True, eval_loss=1.5)  # values that were added have a row always
    assert (row["step"], row["eval_loss"]) == (5, 1.5)


def test_an_alarm_is_raised_once_until_the_value_is_finite_again() -> None:
    made = Made(every=100)
    for value in (1.0, math.nan, math.inf, 1.0):
        made.step(100, loss=value)
    assert made.alarms == 1
    event, row = made.step(101, loss=math.nan)
    assert (event["severity"], event["step"], made.alarms) == ("error", 101, 2)
    assert row["loss"] != row["loss"]


def test_checksums_are_an_event_and_no_values() -> None:
    made = Made()
    halves = {f"{PREFIX}parameters 1": 1.0, f"{PREFIX}parameters 2": float(0xABCDEF)}
    event, row = made.step(7, loss=1.0, **halves)
    assert (event["kind"], event["message"]) == ("replica_checksum", "checksums of rank 3")
    assert event["fields"]["checksums"] == {"parameters": "000001abcdef"}
    assert set(row) == {"type", "step", "time", "loss"}


def test_of_a_batch_whose_names_cannot_be_read_that_is_counted() -> None:
    made = Made()
    assert [row["type"] for row in made.step(1, loss=math.nan, ids=object())] == ["event", "step"]
    assert made.rows.unread == 1


def test_values_have_a_bound_and_the_rows_own_keys_are_not_theirs() -> None:
    row: dict[str, Any] = {}
    given = {"rank": 1.0, "time": 2.0, "x" * 500: 3, "none": None, "text": "4", "flag": False}
    assert len(gather(given, row)) == 3
    assert row == {"x" * MAX_NAME: 3, "flag": False}
    assert len(gather({f"v{number}": 1 for number in range(300)}, row)) == 300 - (MAX_VALUES - 2)
    assert len(row) == MAX_VALUES
    assert gather({"huge": LARGEST + 1, "large": -LARGEST}, row := {}) == []
    assert row == {"huge": float(LARGEST), "large": -LARGEST}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, 7), (True, 1), (LARGEST, LARGEST), (LARGEST + 1, -5), (-LARGEST - 1, -5), (None, -5),
        (2.5, -5), ("7", -5), (object(), -5),
    ],
)  # fmt: skip
def test_a_step_is_a_whole_number_of_64_bits(value: object, expected: int) -> None:
    assert whole(value, -5) == expected


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"), (2.5, 2.5), (3, 3),
        (LARGEST, LARGEST), (LARGEST + 1, "Infinity"), (-LARGEST - 1, "-Infinity"), (True, True),
    ],
)  # fmt: skip
def test_numbers_are_spelled_as_json_can_hold_them(number: float, text: object) -> None:
    assert spelled(number) == text


def test_only_losses_and_gradient_norms_have_to_be_finite() -> None:
    names = ("loss", "loss_text", "eval_loss", "grad_norm", "grad_norm_head", "accuracy", "lossy_x")
    row = {**dict.fromkeys(names, math.nan), "loss_count": 1, "accuracy": math.inf}
    assert [*nonfinite(row)] == [*names[:5], "lossy_x"]


class Watched:
    """The steps of a loop on a clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
        self.now = 50.0
        monkeypatch.setattr("ldlm_callback.steps.monotonic", lambda: self.now)
        self.put: list[Any] = []
        self.hurried = 0
        self.steps = Steps(self.put.append, {"rank": 3}, hurry=self._hurry, **more)

    def _hurry(self) -> None:
        self.hurried += 1

    def kinds(self) -> "list[str]":
        return [row.get("kind", row["type"]) for row in self.put if isinstance(row, dict)]


def test_phases_within_each_other_count_for_the_outer_one_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = Watched(monkeypatch)
    steps = loop.steps
    steps.step(1, {"loss": 1.0})
    for phase, spent in (("data", 2.0), ("eval", 30.0), ("checkpoint", 5.0)):
        steps.enter(phase)
        assert steps.beat.phase == phase.encode()
        steps.enter("data")
        loop.now += spent
        steps.leave(None)
        assert steps.beat.phase == phase.encode()
        steps.leave(None)
    assert steps.beat.phase == b"train"
    steps.step(2, {"loss": 1.0})
    *_, (number, _, at, paused, data, *_) = loop.put
    assert (number, at, paused, data) == (2, 87.0, 35.0, 4.0)
    began = ["eval_started", "eval_finished", "checkpoint_started", "checkpoint_saved"]
    assert [kind for kind in loop.kinds() if kind != "heartbeat"] == began
    heartbeats = [row for row in loop.put if isinstance(row, dict) and row["type"] == "heartbeat"]
    assert [(row["phase"], row["step"], row["rank"]) for row in heartbeats] == [
        (phase, 1, 3) for phase in ("eval", "eval", "checkpoint", "checkpoint")
    ]


def test_a_phase_that_an_exception_ends_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Watched(monkeypatch)
    loop.steps.leave(None)  # none has begun
    for phase in ("eval", "checkpoint", "sampling"):
        loop.steps.enter(phase)
        loop.now += 1.5
        loop.steps.leave(ValueError("x"))
    events = [row for row in loop.put if row["type"] == "event"]
    found = [(each["kind"], each["severity"], each["message"]) for each in events[1::2]]
    assert found == [
        ("eval_finished", "info", "eval: ValueError"),
        ("checkpoint_failed", "error", "checkpoint: ValueError"),
    ]
    assert [each["fields"].get("seconds") for each in events] == [None, 1.5, None, 1.5]
    assert loop.steps.beat.phase == Beat().phase


def test_rows_are_written_at_once_for_a_loss_that_is_not_finite_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = Watched(monkeypatch)
    for after in (0.0, 1.0, 0.5):
        loop.now += after
        loop.steps.step(1, {"loss": math.inf})
    assert loop.hurried == 2
    assert loop.steps.suspicious
    loop.steps.step(2, {"loss": 1e308, "accuracy": math.nan})
    assert loop.hurried == 2


def test_steps_go_past_the_queue_once_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Watched(monkeypatch, room=2)
    for step in (None, None, 7, "x"):
        loop.steps.step(step, {"loss": 1.0})
    assert [entry[0] for entry in loop.steps.queue] == [0, 1]
    assert [entry[0] for entry in loop.put] == [7, 8]
    loop.steps.add_values({"eval_loss": 2.0})
    number, _, at, *_ = loop.put[-1]
    assert (number, at) == (8, None)


class Meter:
    """A number of another library, which goes on changing."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __float__(self) -> float:
        return self.value


class Late:
    """An array of a device that is still computing, as JAX has them."""

    size = 1

    def __init__(self, value: float) -> None:
        self.value, self.is_done, self.waits = value, False, 0
        self.is_copied = False

    def is_ready(self) -> bool:
        return self.is_done

    def copy_to_host_async(self) -> None:
        self.is_copied = True

    def __array__(self) -> None:
        raise AssertionError("nobody converts it in the loop")

    def __float__(self) -> float:
        self.waits += not self.is_done
        return self.value

    __index__ = __float__


class Gone(Late):
    """Its memory was given to the next step."""

    def is_ready(self) -> bool:
        raise RuntimeError("Array has been deleted.")

    def __float__(self) -> float:
        raise RuntimeError("Array has been deleted.")


class Rude:
    """An object whose attributes and number raise what nobody expects."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)

    def __float__(self) -> float:
        raise SystemError("no")


def taken_by(*steps: dict[str, Any]) -> list[dict[str, Any]]:
    """The values of steps as they are passed on to the writer."""
    taken: list[Any] = []
    made = Steps(taken.append, {})
    for number, given in enumerate(steps, 1):
        made.step(number, given)
    return [entry[5] for entry in taken]


def row_of(given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    row: dict[str, Any] = {}
    dropped = gather(given, row)
    return row, dropped


def test_whatever_has_a_float_is_a_number_as_it_was_at_the_step() -> None:
    meter = Meter(2.5)
    (values,) = taken_by({"loss": 1.0, "meter": meter, "parts": {"text": Meter(0.5)}})
    meter.value = 7.0
    assert row_of(values) == ({"loss": 1.0, "meter": 2.5, "parts_text": 0.5}, [])


def test_text_and_lists_are_no_numbers() -> None:
    (values,) = taken_by({"loss": 1.0, "text": "3.5", "raw": b"3.5", "many": [1, 2]})
    assert row_of(values) == ({"loss": 1.0}, ["text", "raw", "many"])


def test_an_array_of_one_element_is_a_number_whatever_its_shape() -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    arrays = {"flat": numpy.ones(1), "deep": numpy.ones((1, 1)), "two": numpy.ones(2)}
    (values,) = taken_by({**arrays, "word": numpy.str_("4")})
    assert row_of(values) == ({"flat": 1.0, "deep": 1.0}, ["two", "word"])


def test_a_value_that_raises_costs_no_other() -> None:
    (values,) = taken_by({"loss": 1.0, "rude": Rude(), "meter": Meter(2.0)})
    assert row_of(values) == ({"loss": 1.0, "meter": 2.0}, ["rude"])


def test_the_first_value_that_is_in_no_row_is_said_with_its_type() -> None:
    said: list[str] = []
    maker = Rows(0, 1, lambda: None, said.append)
    for number in range(3):
        given = {"loss": 1.0, "state": ["a"]}
        maker.make((number, 1.0, float(number), 0.0, None, given, None, None, None, None))
    (text,) = said
    assert "state" in text
    assert "builtins.list" in text
    assert maker.unread == 3


def test_a_step_waits_for_no_array_that_is_still_computed() -> None:
    taken: list[Any] = []
    made, loss = Steps(taken.append, {}), Late(1.5)
    made.step(1, {"loss": loss})
    made.step(2, {"loss": 1.25})
    assert (taken, loss.waits, loss.is_copied) == ([], 0, True)
    loss.is_done = True
    made.step(3, {"loss": 1.0})
    assert [entry[5]["loss"] for entry in taken] == [1.5, 1.25, 1.0]
    assert loss.waits == 0


def test_a_number_of_a_step_that_is_still_computed_is_the_next_one() -> None:
    taken: list[Any] = []
    made, number = Steps(taken.append, {}), Late(7)
    made.step(6, {"loss": 1.0})
    made.step(number, {"loss": 1.0})
    assert ([entry[0] for entry in taken], number.waits) == ([6, 7], 0)


def test_an_array_of_several_elements_is_left_on_its_device() -> None:
    many = Late(1.0)
    many.size = 4
    (values,) = taken_by({"loss": 1.0, "many": many})
    assert row_of(values) == ({"loss": 1.0}, ["many"])
    assert not many.is_copied


def test_an_array_whose_memory_is_gone_costs_its_value_alone() -> None:
    first, _ = taken_by({"loss": Gone(1.0), "grad_norm": 0.5}, {"loss": 1.0})
    assert row_of(first) == ({"grad_norm": 0.5}, ["loss"])


def test_of_a_device_that_hangs_few_arrays_are_kept() -> None:
    made = Steps(lambda entry: None, {})
    arrays = [Late(1.0) for _ in range(100)]
    for number, each in enumerate(arrays):
        made.step(number, {"loss": each})
    assert sum(each.is_copied for each in arrays) == SLOTS
    assert made.unread == 100 - SLOTS
