"""The genuine runs: every found event at its line and byte, every row, and no wrong number."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Event, Record, Sample
from ldlm_monitor.logs.parse import Parser, clock_marks

RUNS = [
    "A4_truncated_Loss_value",
    "A_healthy_1proc",
    "B_healthy_2proc",
    "C1_nan_latent_stable",
    "C2_nan_blocks_prefix_trainer",
    "D3_gradnorm_inf_lossscale",
    "D5_lr_100_stuck_at_clamp",
    "E_crash_index_error_rank",
    "F1_sigkill_rank1",
    "G_resume_same_name",
    "H_hang_sigstop_rank1_90s",
]


def records_of(path: Path, size: int = 1 << 16) -> list[Record]:
    """Parse a file as a follower would hand it over: whole records, `size` bytes at a time."""
    data, parser, found = path.read_bytes(), Parser(), []
    start = 0
    while start < len(data):
        end = max(data.rfind(b"\n", start, start + size), data.rfind(b"\r", start, start + size))
        end = len(data) if end < 0 or start + size >= len(data) else end + 1
        line = 1 + data.count(b"\n", 0, start)
        chunk = Chunk(path.name, (1, 1, 0), start, line, data[start:end], final=end == len(data))
        found += parser.feed(chunk, Origin(run="r"), 0.0)
        start = end
    assert parser.counters.parse_errors == 0
    assert parser.counters.bytes == len(data)
    assert parser.counters.lines == data.count(b"\n")
    return found + parser.finish(path.name)


@pytest.fixture(params=RUNS)
def run(request, corpus) -> tuple[Path, dict[str, Any]]:
    folder = corpus / "upstream" / request.param
    index = json.loads((corpus / "upstream" / "index.json").read_text())[request.param]
    return folder, index["files"]


def log_of(folder: Path) -> Path:
    (log,) = (folder / "train_logs").glob("*.log")
    return log


def record_start(data: bytes, offset: int) -> int:
    return max(data.rfind(b"\n", 0, offset), data.rfind(b"\r", 0, offset)) + 1


def test_every_event_found_by_hand_stands_at_its_line_and_byte(run) -> None:
    folder, files = run
    log = log_of(folder)
    data = log.read_bytes()
    found = files[f"train_logs/{log.name}"]["found"]
    events = [r for r in records_of(log) if isinstance(r, Event)]

    def places(*kinds: str) -> list[tuple[int, int]]:
        return [(e.position.line, e.position.offset) for e in events if e.kind in kinds]

    def hits(key: str, *, of_record: bool = False) -> list[tuple[int, int]]:
        return [
            (hit["line"], record_start(data, hit["offset"]) if of_record else hit["offset"])
            for hit in found.get(key, {"hits": []})["hits"]
        ]

    invalid = sorted(hits("invalid_loss_block") + hits("invalid_grad_block"))
    warned = hits("warn_invalid_text_loss")
    listed = len(hits("invalid_grad_block"))
    assert found.get("invalid_grad_block", {"count": listed})["count"] >= listed
    assert set(invalid + warned) <= set(places("nonfinite_metric"))
    total = sum(
        found.get(key, {"count": 0})["count"]
        for key in ("invalid_loss_block", "invalid_grad_block", "warn_invalid_text_loss")
    )
    assert len(places("nonfinite_metric")) == total
    assert places("skipped_step") == [p for p in places("nonfinite_metric") if p not in warned]
    assert places("python_exception") == hits("traceback")
    # Hits are of the message; an event begins with the logger's header in front of it.
    for kind, key in (
        ("elastic_worker_failed", "torchrun_failed_line"),
        ("elastic_failure_table", "torchrun_table"),
        ("elastic_agent_signaled", "death_signal"),
    ):
        for place, hit, start in zip(
            places(kind), hits(key), hits(key, of_record=True), strict=True
        ):
            assert place[0] == hit[0]
            assert start[1] <= place[1] <= hit[1]
            assert not data[place[1] : hit[1]].startswith(b"Training")
    assert places("checkpoint_saved") == hits("saved_checkpoint")
    assert [line for line, _ in places("eval_started")] == [line for line, _ in hits("eval_start")]


def test_a_bar_never_gives_a_loss_that_the_run_did_not_have(run) -> None:
    folder, _ = run
    rows = (folder / "saved" / "training_log.jsonl").read_text().splitlines()
    truth = {row["step"]: row["loss"] for row in map(json.loads, rows)}
    bars = [
        r
        for r in records_of(log_of(folder))
        if isinstance(r, Sample) and "progress" in r.values and "loss" in r.values
    ]
    # The postfix is set after every tenth step; a step that was skipped leaves the old one.
    possible = {f"{loss:.4f}" for loss in truth.values()}
    for bar in bars:
        assert f"{bar.values['loss']:.4f}" in possible
    # The bar is drawn once before the new postfix is set, and once after.
    for bar in bars if folder.name[:2] not in ("C2", "D3") else ():
        before = bar.step - bar.step % 10
        steps = {before, bar.step - 10} if bar.step % 10 == 0 else {before}
        assert bar.values["loss"] in {
            float(f"{truth[step]:.4f}") for step in steps if step in truth
        }
    if folder.name.startswith("A4"):
        assert len(bars) <= 1
    elif folder.name.startswith("A_"):
        assert len(bars) > 1000


def test_every_jsonl_row_is_a_sample_with_every_number(run) -> None:
    folder, _ = run
    path = folder / "saved" / "training_log.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    samples = records_of(path, 4096)
    assert len(samples) == len(rows)
    names = {
        "lr": "learning_rate",
        "text_loss": "loss_text",
        "latent_loss": "loss_latent",
        "text_accuracy": "accuracy_text",
    }
    offset = 0
    for number, (row, sample, raw) in enumerate(
        zip(rows, samples, path.read_bytes().splitlines(keepends=True), strict=True), 1
    ):
        assert isinstance(sample, Sample)
        assert (sample.step, sample.epoch) == (row.pop("step"), row.pop("epoch"))
        assert (sample.position.line, sample.position.offset) == (number, offset)
        offset += len(raw)
        assert {names.get(key, key) for key in row} == set(sample.values)
        for key, value in row.items():
            read = sample.values[names.get(key, key)]
            assert read == value or (math.isnan(read) and math.isnan(value))


@pytest.mark.parametrize(
    "name",
    [
        "A_healthy_1proc",
        "B_healthy_2proc",
        "G_resume_same_name",
        "A4_truncated_Loss_value",
        "H_hang_sigstop_rank1_90s",
    ],
)
def test_a_run_without_a_fault_has_no_event_of_severity_error(corpus, name) -> None:
    folder = corpus / "upstream" / name
    for path in (log_of(folder), *folder.glob("console.out")):
        serious = [
            r
            for r in records_of(path)
            if isinstance(r, Event) and r.severity in ("error", "critical")
        ]
        assert serious == []


def test_exactly_the_runs_that_reached_their_last_step_have_a_full_bar(run) -> None:
    folder, _ = run
    records = records_of(log_of(folder))
    events = [r for r in records if isinstance(r, Event)]
    ended = folder.name[:2] not in ("A4", "C1", "E_", "F1")
    samples = [r for r in records if isinstance(r, Sample)]
    assert any(r.values.get("progress") == 1.0 for r in samples) == ended
    assert [e.kind for e in events].count("run_started") == 1
    started = [e.kind for e in events].count("eval_started")
    assert [e.kind for e in events].count("eval_finished") == started


def test_clock_marks_are_the_training_bars_and_the_rows(run) -> None:
    folder, files = run
    log = log_of(folder)
    bars = [
        (r.position.offset, r.step)
        for r in records_of(log)
        if isinstance(r, Sample) and "progress" in r.values
    ]
    marks = [mark for mark in clock_marks(log.read_bytes()) if not mark.inner]
    assert [(mark.offset, mark.step) for mark in marks] == bars
    assert len(marks) == files[f"train_logs/{log.name}"]["tqdm"]["updates"]
    elapsed = [mark.elapsed for mark in marks if mark.elapsed is not None]
    assert elapsed == sorted(elapsed)
    rows = clock_marks((folder / "saved" / "training_log.jsonl").read_bytes(), 10, rows=True)
    assert [mark.step for mark in rows] == list(range(len(rows)))
    assert rows[0].offset == 10


def test_the_launch_console_tells_the_configuration(corpus) -> None:
    events = records_of(corpus / "upstream" / "E_crash_index_error_rank" / "console.out")
    config: dict[str, Any] = {}
    for event in events:
        if isinstance(event, Event) and event.kind == "config":
            config.update(event.fields)
    assert config["world_size"] == 2
    assert config["learning_rate"] == 0.0005
    assert config["nccl_debug_file"].endswith("nccl_debug_0.log")
    assert config["working_directory"].endswith("E_crash_index_error_rank")


def test_the_crash_names_the_exception_and_the_table_names_the_rank(corpus) -> None:
    events = records_of(log_of(corpus / "upstream" / "E_crash_index_error_rank"))
    exceptions = [e for e in events if isinstance(e, Event) and e.kind == "python_exception"]
    assert [(e.severity, e.fields["role"]) for e in exceptions] == [
        ("error", "root"),
        ("error", "death"),
    ]
    assert exceptions[0].message == "IndexError: Target 30521 is out of bounds."
    assert str(exceptions[0].fields["file"]).endswith("improved_trainer_stable.py")
    (table,) = [e for e in events if isinstance(e, Event) and e.kind == "elastic_failure_table"]
    assert (table.fields["root_rank"], table.fields["root_exitcode"]) == (1, 1)
    assert len(table.fields["failures"]) == 2


ELASTIC = {
    "kill.log": (["gloo_peer_closed"] * 2, [0, 2], (1, "SIGKILL")),
    "raise.log": (
        ["python_exception", "gloo_peer_closed", "gloo_peer_closed"],
        [0, 1, 2],
        (1, None),
    ),
    "segv.log": (["gloo_peer_closed"] * 2 + ["fatal_python_error"], [1, 3], (2, "SIGSEGV")),
}


@pytest.mark.parametrize("name", ELASTIC)
def test_interleaved_ranks_come_apart(corpus, name) -> None:
    kinds, ranks, root = ELASTIC[name]
    events = [r for r in records_of(corpus / "elastic" / name) if isinstance(r, Event)]
    wanted = {"python_exception", "gloo_peer_closed", "fatal_python_error"}
    serious = [
        e for e in events if e.kind in wanted and e.fields["role"] not in ("death", "context")
    ]
    assert sorted(e.kind for e in serious) == sorted(kinds)
    assert sorted(e.rank for e in serious if e.rank is not None) == ranks
    (table,) = [e for e in events if e.kind == "elastic_failure_table"]
    assert (table.fields["root_rank"], table.fields["root_signal"]) == root
    for event in serious:
        text = str(event.fields.get("traceback", ""))
        assert text.count("Traceback") <= 1
