"""A record that makes our own code raise costs itself; it is counted, and logged once."""

from collections.abc import Callable
from typing import Any

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.framing import Framing
from ldlm_monitor.base.records import Sample, SampleBlock, TimedRows
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.judge.detect.detectors import DetectorsByRun
from ldlm_monitor.judge.incidents.grouping import Incidents
from ldlm_monitor.judge.run.lifecycle import Lifecycle
from ldlm_monitor.judge.run.training_run import TrainingRun
from ldlm_monitor.logs.parse import jsonl
from ldlm_monitor.logs.parse.event_file import EventFileReader
from ldlm_monitor.logs.parse.row_columns import RowShape
from ldlm_monitor.logs.parse.row_decoders import RowColumns
from ldlm_monitor.logs.parse.table_file import TableReader
from ldlm_monitor.logs.parse.text_reader import TextReader
from ldlm_monitor.logs.parse.tracebacks import Traceback
from tests.logs.event_files.tfevents import VERSION, scalar

NOW = 1_769_681_700.0
POISON = 13.25
"""The value of the record that raises."""
LOSSES = ["2.5", "2.5", "2.5", "2.5", "13.25", "2.5", "2.5", "2.5", "2.5", "NaN"]
TEXT = "".join(f"step {step} loss {loss} grad_norm 1.0\n" for step, loss in enumerate(LOSSES))
ROWS = "".join(f'{{"step": {step}, "loss": {loss}}}\n' for step, loss in enumerate(LOSSES))
TIMED = "".join(
    f'{{"step": {step}, "time": {NOW - 60 + step}, "loss": {loss}}}\n'
    for step, loss in enumerate(LOSSES)
)
TABLE = "step,loss\n" + "".join(f"{step},{loss}\n" for step, loss in enumerate(LOSSES))
FRAMES = VERSION + b"".join(scalar("loss", float(loss), step) for step, loss in enumerate(LOSSES))


def is_poison(value: object) -> bool:
    if isinstance(value, Sample):
        return POISON in value.values.values()
    if isinstance(value, SampleBlock):
        return any(map(is_poison, value.samples()))
    if isinstance(value, tuple | list) and value and isinstance(value[0], TimedRows):
        return any(is_poison(rows.item) for rows in value)
    if isinstance(value, RowColumns):
        return is_poison(value.full)
    if isinstance(value, dict | list):
        return str(POISON) in repr(value)
    text = getattr(value, "text", value)
    return isinstance(text, bytes) and (b"13.25" in text or b"\x00\x00\x54\x41" in text)


def plant(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Make a function raise where the poison is among its arguments."""
    genuine = getattr(owner, name)

    def poisoned(*arguments: Any, **named: Any) -> Any:
        if any(map(is_poison, arguments)):
            raise ZeroDivisionError("planted")
        return genuine(*arguments, **named)

    monkeypatch.setattr(owner, name, poisoned)


def judged(path: str, data: bytes, framed: Framing | None = None) -> tuple[Monitor, list[str]]:
    monitor = Monitor()
    found = monitor.feed(Chunk(path, (1, 1, 0), 0, 1, data, final=True, framed=framed), NOW)
    found += monitor.finish(NOW + 60, [path])
    return monitor, [f"{each.alert} {each.state}" for each in found]


@pytest.mark.parametrize(
    ("place", "path", "data"),
    [
        ((jsonl, "records"), "a.jsonl", ROWS),
        ((RowShape, "blocks"), "a.jsonl", ROWS),
        ((TextReader, "_record"), "a.log", TEXT),
        ((TableReader, "read"), "a.csv", TABLE),
        ((EventFileReader, "records"), "events.out.tfevents.1", FRAMES),
        ((TrainingRun, "observe"), "a.log", TEXT),
        ((TrainingRun, "observe"), "a.jsonl", ROWS),
        ((TrainingRun, "observe"), "a.jsonl", TIMED),
    ],
)
def test_one_record_that_raises_costs_itself(
    monkeypatch, caplog, place: tuple[Any, str], path: str, data: str | bytes
) -> None:
    owner, name = place
    if owner in (jsonl, TrainingRun):  # the rows of a block are read and judged one by one
        monkeypatch.setattr(RowShape, "read", lambda _shape, _data, at, _base: RowColumns((), at))
    plant(monkeypatch, owner, name)
    raw = data.encode() if isinstance(data, str) else data
    monitor, alerts = judged(
        path, raw, EventFileReader.framing if isinstance(data, bytes) else None
    )
    assert "NonFiniteLoss firing" in alerts
    (run,) = monitor.snapshot().runs
    assert run.statistics["loss"].count == (10 if owner is RowShape else 9)
    assert run.step == 9
    assert monitor.snapshot().monitor.dropped["internal_error"] == 1
    (line,) = caplog.records
    assert line.message.startswith(f"{path}, line ")
    assert "a bug of ours, please report it; the record is left out" in line.message


@pytest.mark.parametrize("data", [ROWS, TIMED])
def test_a_block_that_raises_is_judged_row_by_row(monkeypatch, data: str) -> None:
    plant(monkeypatch, TrainingRun, "observe")
    monitor, alerts = judged("a.jsonl", data.encode())
    assert "NonFiniteLoss firing" in alerts
    (run,) = monitor.snapshot().runs
    assert (run.step, run.statistics["loss"].count) == (9, 9)


def test_rows_that_raise_before_they_are_judged_do_not_stop_those_that_follow(monkeypatch) -> None:
    def raises(*_: object) -> bool:
        raise ZeroDivisionError("planted")

    monitor, data = Monitor(), TIMED.encode()
    with monkeypatch.context() as patch:
        patch.setattr(Lifecycle, "only_advances", raises)
        with pytest.raises(ZeroDivisionError):
            monitor.feed(Chunk("a.jsonl", (1, 1, 0), 0, 1, data), NOW)
    later = f'{{"step": 20, "time": {NOW + 1}, "loss": 2.25}}\n'.encode()
    monitor.feed(Chunk("a.jsonl", (1, 1, 0), len(data), 11, later), NOW + 1)
    (run,) = monitor.snapshot().runs
    assert (run.step, run.statistics["loss"].current) == (20, 2.25)


def test_a_place_in_the_code_is_logged_once_and_counted_every_time(monkeypatch, caplog) -> None:
    plant(monkeypatch, TextReader, "_record")
    monitor, _ = judged("a.log", (TEXT * 5).encode())
    assert monitor.snapshot().monitor.dropped["internal_error"] == 5
    assert len(caplog.records) == 1


@pytest.mark.parametrize("name", ["take", "records"])
def test_a_block_of_lines_that_raises_takes_no_other_line_with_it(monkeypatch, name: str) -> None:
    def raises(*_: object, **__: object) -> Callable[[], None]:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(Traceback, name, raises)
    failure = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: x\n'
    monitor, alerts = judged("a.log", (TEXT[:90] + failure + TEXT[90:]).encode())
    assert "NonFiniteLoss firing" in alerts
    assert monitor.snapshot().monitor.dropped["internal_error"] >= 1


def test_a_line_that_raises_leaves_what_others_had_begun(monkeypatch) -> None:
    plant(monkeypatch, TextReader, "_record")
    begun = '[rank0]: Traceback (most recent call last):\n[rank0]:   File "a.py", line 1, in f\n'
    rest = "[rank0]: torch.OutOfMemoryError: CUDA out of memory.\n\n"
    monitor, _ = judged("a.log", (begun + "step 4 loss 13.25\n" + rest).encode())
    assert monitor.snapshot().monitor.dropped["internal_error"] == 1
    assert [event.kind for event in monitor.snapshot().events if event.severity != "info"]


@pytest.mark.parametrize("owner", [DetectorsByRun, Incidents])
def test_a_run_whose_analysis_raises_stops_no_rule_of_another(monkeypatch, owner: type) -> None:
    name = "update" if owner is DetectorsByRun else "settle"
    genuine = getattr(owner, name)

    def poisoned(self: Any, run: str, *rest: Any) -> Any:
        if run == "poisoned":
            raise ZeroDivisionError("planted")
        return genuine(self, run, *rest)

    monkeypatch.setattr(owner, name, poisoned)
    monitor = Monitor()
    for path in ("poisoned.log", "other.log"):
        monitor.feed(Chunk(path, (1, len(path), 0), 0, 1, b"step 1 loss 2.5\n"), NOW)
    monitor.tick(NOW + 10)
    steps = [run.step for run in monitor.snapshot().runs if run.name == "other"]
    assert steps == [1]
    assert monitor.own.view().dropped["internal_error"] > 0
