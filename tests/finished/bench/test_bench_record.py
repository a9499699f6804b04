"""What a benchmark kept is read as a log is."""

import json
from pathlib import Path

import pytest

from ldlm_monitor.base.errors import InputError
from ldlm_monitor.finished.bench_record import FILE, BenchRecord, BenchSeries, read_record


def series(*values: float, first: int = 0) -> BenchSeries:
    steps = tuple(range(first, first + len(values)))
    return BenchSeries(steps=steps, times=tuple(100.0 + step for step in steps), values=values)


RECORD = BenchRecord(
    name="fast",
    command=("python", "train.py"),
    started_at=90.0,
    seconds=20.0,
    stopped_by="steps",
    exit_code=-15,
    steps=3,
    settings={"batch_size": "16"},
    exact=True,
    series={
        "steps": series(0.0, 0.0, 0.0, first=2),
        "loss": series(3.0, 2.0, 1.0, first=2),
        "host_memory_bytes": series(*map(float, range(10, 18))),
        "memory_allocated_bytes": series(5.0, 6.0),
    },
)


def test_a_record_gives_the_readings_of_its_run() -> None:
    found = RECORD.readings()
    assert (found.name, [*found.files], found.settings) == ("fast", ["fast"], {"batch_size": "16"})
    assert [*found.steps.steps] == [2, 3, 4]
    assert [*found.steps.times] == [102.0, 103.0, 104.0]
    loss = found.column("loss")
    assert loss is not None
    assert ([*loss.steps], [*loss.values]) == ([2, 3, 4], [3.0, 2.0, 1.0])
    assert (found.first_step, found.last_step, found.seconds) == (2, 4, 2.0)
    assert found.is_exact


def test_memory_that_was_watched_counts_from_the_first_step_to_the_last() -> None:
    found = RECORD.readings()
    watched, logged = found.column("host_memory_bytes"), found.column("memory_allocated_bytes")
    assert watched is not None
    assert logged is not None
    assert [*watched.values] == [12.0, 13.0, 14.0]
    assert [*logged.values] == [5.0, 6.0]


def test_a_record_without_steps_keeps_all_that_was_watched() -> None:
    kept = {"host_memory_bytes": RECORD.series["host_memory_bytes"]}
    column = RECORD.model_copy(update={"series": kept}).readings().column("host_memory_bytes")
    assert column is not None
    assert len(column) == 8


def test_steps_of_an_inexact_record_have_no_times_of_their_own() -> None:
    assert not RECORD.model_copy(update={"exact": False}).readings().is_exact


def test_a_record_is_found_by_its_file_or_its_folder(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(RECORD.model_dump_json(by_alias=True))
    assert read_record(tmp_path / FILE) == read_record(tmp_path) == RECORD


def test_other_files_are_no_records(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(RECORD.model_dump_json(by_alias=True))
    (tmp_path / "other.json").write_text(json.dumps({"text": "x" * 300, "schema": "ldlm.bench/1"}))
    found = [read_record(tmp_path / each) for each in ("log.jsonl", "other.json", "none.json")]
    assert found == [None, None, None]
    assert read_record(tmp_path) is None


def test_a_record_of_another_form_is_refused(tmp_path: Path) -> None:
    place = tmp_path / FILE
    place.write_text('{"schema": "ldlm.bench/1", "name": 3}')
    with pytest.raises(InputError, match=r"is no bench record of this version \(\d+ errors\)"):
        read_record(place)
