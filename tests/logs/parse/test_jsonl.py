"""JSON lines: metric rows of any trainer and the callback's files."""

from __future__ import annotations

import json
import math

import pytest

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Event, Heartbeat, Sample
from ldlm_monitor.logs.parse import Parser


def test_a_row_keeps_every_number_under_its_canonical_name(parse) -> None:
    (sample,) = parse(
        '{"epoch": 1, "step": 44, "loss": NaN, "lr": 2e-4, "text_loss": Infinity,'
        ' "latent_loss": 0.0, "text_accuracy": 0.5, "eval_loss": 1, "ema_loss": 2, "Foo/Bar": 3,'
        ' "grad_norm": "-Infinity", "mode": "l2t", "flag": true, "nested": {"a": 1, "b": "x"}}\n',
        path="training_log.jsonl",
    )
    assert (sample.step, sample.epoch, sample.rank, sample.time) == (44, 1.0, None, None)
    assert math.isnan(sample.values.pop("loss"))
    assert sample.values == {
        "learning_rate": 2e-4,
        "loss_text": math.inf,
        "loss_latent": 0.0,
        "accuracy_text": 0.5,
        "eval_loss": 1.0,
        "ema_loss": 2.0,
        "foo_bar": 3.0,
        "grad_norm": -math.inf,
        "nested_a": 1.0,
    }


@pytest.mark.parametrize(
    ("row", "time", "values"),
    [
        ('{"time": 1781178259.5, "x": 1}', 1781178259.5, {"x": 1.0}),
        ('{"timestamp": "2026-06-11T11:44:19Z", "x": 1}', 1781178259.0, {"x": 1.0}),
        ('{"_timestamp": 1781178259, "x": 1}', 1781178259.0, {"x": 1.0}),
        ('{"time": 0.25, "x": 1}', None, {"time": 0.25, "x": 1.0}),
    ],
)
def test_a_time_is_unix_time_or_a_number_like_any_other(parse, row, time, values) -> None:
    (sample,) = parse(row + "\n", path="a.jsonl")
    assert (sample.time, sample.values) == (time, values)


@pytest.mark.parametrize("loss", ["null", '"n/a"', "[]"])
def test_a_step_whose_metric_is_no_number_is_a_step(parse, loss: str) -> None:
    (sample,) = parse(f'{{"step": 7, "loss": {loss}, "time": 1781178259}}\n', path="a.jsonl")
    assert (sample.step, sample.values, sample.time) == (7, {}, 1781178259.0)


@pytest.mark.parametrize("row", ['{"loss": null}', '{"step": 7, "name": "build"}', '{"step": 7}'])
def test_a_row_without_a_number_and_a_metric_of_a_step_is_none(parse, row: str) -> None:
    assert parse(row + "\n", path="a.jsonl") == []


def test_lines_that_are_no_objects_are_counted_and_lose_nothing() -> None:
    parser = Parser()
    data = b'{"step": 1, "loss": 1}\nTraceback\n[1, 2]\n\n{"step": 2, "loss": 2}\n{"step": 3, "lo'
    chunk = Chunk("a.jsonl", (1, 1, 0), 0, 1, data, final=True)
    records = parser.feed(chunk, Origin(run="r", rank=5), 0.0)
    assert [(r.step, r.rank, r.position.line) for r in records] == [(1, 5, 1), (2, 5, 5)]
    assert parser.counters.parse_errors == 3


def test_a_callbacks_file_tells_start_steps_heartbeats_events_and_end(parse) -> None:
    rows = [
        {
            "schema": "ldlm.health/1",
            "type": "run",
            "run": "x",
            "rank": 3,
            "world_size": 8,
            "pid": 7,
            "host": "h",
            "framework": "pytorch",
            "config": {"learning_rate": 5e-4},
        },
        {"type": "step", "step": 10, "time": 1781178259.0, "loss": "NaN", "grad_norm": 1.0},
        {
            "type": "heartbeat",
            "host": "h",
            "pid": 7,
            "step": 10,
            "phase": "forward",
            "time": 1781178260.0,
        },
        {
            "type": "event",
            "kind": "checkpoint_saved",
            "severity": "info",
            "message": "saved",
            "time": 1781178261.0,
            "fields": {"path": "x.pt"},
        },
        {"type": "stack_dump", "time": 1781178262.0, "stacks": "Thread 1"},
        {"type": "end", "status": "failed", "error": "ValueError: bad"},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    started, config, step, beat, saved, dump, end = parse(text, path="health_rank3.jsonl")
    assert isinstance(started, Event)
    assert started.kind == "run_started"
    assert {"run": "x", "world_size": 8, "pid": 7}.items() <= started.fields.items()
    assert (config.kind, config.fields["learning_rate"]) == ("config", 5e-4)
    assert isinstance(step, Sample)
    assert (step.step, step.rank, step.time) == (10, 3, 1781178259.0)
    assert math.isnan(step.values["loss"])
    assert isinstance(beat, Heartbeat)
    assert (beat.rank, beat.phase, beat.time) == (3, "forward", 1781178260.0)
    assert (saved.kind, saved.fields["path"]) == ("checkpoint_saved", "x.pt")
    assert dump.kind == "stack_dump"
    assert (end.kind, end.severity, end.message) == ("python_exception", "error", "ValueError: bad")
    assert {record.rank for record in (started, step, saved, dump, end)} == {3}


@pytest.mark.parametrize(
    ("error", "role"),
    [
        ("RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:18311.", "victim"),
        ("RuntimeError: [pair.cc:534] Read error [10.0.0.1]:3: Connection reset by peer", "victim"),
        ("DistBackendError: remote process exited or there was a network error", "victim"),
        ("ValueError: a peer review was closed", "root"),
        ("ConnectionError: no connection to the database", "root"),
    ],
)
def test_who_ended_because_another_rank_was_gone_is_a_victim(parse, error, role) -> None:
    row = {"type": "end", "status": "failed", "error": error}
    (event,) = parse(json.dumps(row) + "\n", path="health_rank0.jsonl")
    assert (event.kind, event.fields["role"]) == ("python_exception", role)


def test_a_run_that_ended_well_is_finished(parse) -> None:
    (event,) = parse('{"type": "end", "status": "finished"}\n', path="health_rank0.jsonl")
    assert (event.kind, event.severity) == ("run_finished", "info")


@pytest.mark.parametrize(
    "key", ["it", "Step", "Iteration", "optimizer-step", "trainer/global step"]
)
def test_the_step_is_known_by_any_of_its_names(parse, key: str) -> None:
    (sample,) = parse(json.dumps({key: 5, "my_metric": 2.5}) + "\n", "any.jsonl")
    assert (sample.step, sample.values) == (5, {"my_metric": 2.5})


@pytest.mark.parametrize("key", ["global_step/max_steps", "step", "iter/total"])
def test_a_step_that_is_written_with_its_total_gives_both(parse, key: str) -> None:
    (sample,) = parse(json.dumps({"loss": 1.5, key: "160/438"}) + "\n", "any.jsonl")
    assert (sample.step, sample.values) == (160, {"total_steps": 438.0, "loss": 1.5})


@pytest.mark.parametrize("text", ["160/438/2", "16.0/438", "/438", "today/438"])
def test_a_text_that_only_resembles_a_step_with_its_total_is_none(parse, text: str) -> None:
    row = json.dumps({"loss": 1.5, "step": text, "date": "12/2026"})
    (sample,) = parse(row + "\n", "any.jsonl")
    assert (sample.step, sample.values) == (None, {"loss": 1.5})


@pytest.mark.parametrize("step", [3.5, -0.25, math.inf, math.nan, True, "7"])
def test_a_step_that_is_no_whole_number_is_a_value_like_any_other(parse, step: object) -> None:
    found = parse(json.dumps({"step": step, "loss": 2.5}) + "\n", path="any.jsonl")
    assert [sample.step for sample in found] == [None]
    assert found[0].values["loss"] == 2.5


def test_a_step_that_is_written_as_a_float_counts_if_it_is_whole(parse) -> None:
    (sample,) = parse('{"step": 3.0, "global_step": 3.5, "loss": 2.5}\n', path="any.jsonl")
    assert (sample.step, sample.values) == (3, {"global_step": 3.5, "loss": 2.5})


def test_a_heartbeat_whose_step_is_no_whole_number_is_an_error() -> None:
    row = {"type": "heartbeat", "time": 1781178260.0, "rank": 0, "pid": 7, "step": 3.5}
    parser = Parser()
    chunk = Chunk("health_rank0.jsonl", (1, 1, 0), 0, 1, json.dumps(row).encode() + b"\n")
    assert parser.feed(chunk, Origin(run="r"), 0.0) == []
    assert parser.counters.parse_errors == 1


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('{"level": "error", "message": "shard 7 is unreadable"}', ["shard 7 is unreadable"]),
        ('{"levelname": "CRITICAL", "msg": "no space", "asctime": "10:00:00"}', ["no space"]),
        ('{"level": "info", "message": "error handler is set"}', []),
        ('{"level": "error"}', []),
    ],
)
def test_what_a_logger_of_json_lines_calls_an_error_is_one(
    parse, row: str, said: list[str]
) -> None:
    found = parse('{"step": 1, "loss": 2.5}\n' + row + "\n", path="log.jsonl")
    assert [(r.kind, r.severity, r.message) for r in found if isinstance(r, Event)] == [
        ("error", "error", text) for text in said
    ]


def test_a_last_row_without_its_end_is_shown_and_comes_once() -> None:
    parser, origin = Parser(), Origin("run")
    whole = b'{"step": 1, "loss": 2.5}\n'

    def peek(data: bytes) -> list[object]:
        chunk = Chunk("a.jsonl", (1, 1, 0), len(whole), 2, data, peek=True)
        return parser.feed(chunk, origin, 2.0)

    parser.feed(Chunk("a.jsonl", (1, 1, 0), 0, 1, whole), origin, 1.0)
    assert peek(b'{"step": 2, "lo') == []
    (shown,) = peek(b'{"step": 2, "loss": NaN}')
    assert shown.step == 2
    assert peek(b'{"step": 2, "loss": NaN}') == []
    rest = b'{"step": 2, "loss": NaN}\n{"step": 3, "loss": 2.5}\n'
    came = parser.feed(Chunk("a.jsonl", (1, 1, 0), len(whole), 2, rest), origin, 3.0)
    assert [(row.step, row.position.line) for row in came] == [(3, 3)]
    assert parser.counters.parse_errors == 0


def test_the_first_row_is_shown_though_it_has_no_end() -> None:
    chunk = Chunk("a.jsonl", (1, 1, 0), 0, 1, b'{"step": 1, "loss": 2.5}', peek=True)
    (row,) = Parser().feed(chunk, Origin("run"), 2.0)
    assert row.step == 1


@pytest.mark.parametrize("path", ["a.jsonl", "a.log"])
def test_a_lone_surrogate_is_replaced_and_a_pair_is_a_character(parse, path: str) -> None:
    """A kind is a label, which the patterns of rules match as UTF-8: it has no surrogates."""
    row = r'{"type": "event", "kind": "\ud800x", "message": "\uD83D\uDE00"}'
    (event,) = parse(row + "\n", path=path)
    assert (event.kind, event.message) == ("\ufffdx", "\U0001f600")
