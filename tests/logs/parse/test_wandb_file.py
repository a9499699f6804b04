"""W&B's transaction logs: the records of genuine files, and of damaged ones."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.records import Event, Sample
from ldlm_monitor.logs.parse.wandb_file import WandbReader
from ldlm_monitor.logs.source.split import RECORD_BYTES
from tests.logs.event_files import framed
from tests.logs.event_files.framed import FILES
from tests.logs.event_files.wandblog import BLOCK_BYTES, HEADER, ended, field, log_of, row

FAILED = (FILES / "failed.wandb").read_bytes()
FINISHED = (FILES / "finished.wandb").read_bytes()
NAME = "wandb/offline-run-20261121_211546-failed0001/run-failed0001.wandb"


read = partial(framed.read, path=NAME)
chunks_of = partial(framed.chunks_of, path=NAME)


SOUND = read(FAILED)[0]


def samples(data: bytes) -> list[tuple[int | None, dict[str, float]]]:
    return [(r.step, dict(r.values)) for r in read(data)[0] if isinstance(r, Sample)]


def events(data: bytes) -> list[Event]:
    return [record for record in read(data)[0] if isinstance(record, Event)]


def test_the_history_of_a_genuine_log_is_samples_with_step_and_time() -> None:
    found, errors = read(FAILED)
    rows = [record for record in found if isinstance(record, Sample)]
    assert [sample.step for sample in rows] == list(range(90))
    for step, sample in enumerate(rows):
        loss = math.nan if step == 87 else 3 / (step + 1)
        assert sample.values["loss"] == pytest.approx(loss, nan_ok=True)
        assert sample.values["grad_norm"] == 1 + step % 7 / 8
        assert sample.values["learning_rate"] == 3e-4
        assert sample.values.get("eval_loss") == (4.5 if step % 20 == 19 else None)
    assert all(1.795e9 < (sample.time or 0) < 1.796e9 for sample in rows)
    assert set(rows[0].values) == {"loss", "grad_norm", "learning_rate"}
    assert errors == 0


def test_the_run_tells_its_name_its_host_and_its_config() -> None:
    started, config, *_ = events(FINISHED)
    assert (started.kind, started.fields["run"], started.fields["host"]) == (
        "run_started",
        "brave-fox",
        "node1",
    )
    assert config.kind == "config"
    assert config.fields["learning_rate"] == 3e-4
    assert config.fields["batch_size"] == 8
    assert config.fields["model"] == {"layers": 2}
    assert "_wandb" not in config.fields


def test_a_run_without_a_name_is_told_by_its_id_and_a_later_config_is_no_beginning() -> None:
    batch = field(1, field(2, b"batch_size") + field(16, b"8"))
    data = log_of(field(17, field(1, b"a1b2") + field(8, b"")), field(5, batch))
    started, config = events(data)
    assert (started.kind, started.fields["run"]) == ("run_started", "a1b2")
    assert (config.kind, config.fields["batch_size"]) == ("config", 8)


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [("failed", "elastic_worker_failed", 1), ("stopped", "python_exception", 255)],
)
def test_an_exit_code_is_a_failure_and_that_of_ctrl_c_an_interrupt(name, kind, code) -> None:
    event = events((FILES / f"{name}.wandb").read_bytes())[-1]
    assert (event.kind, event.severity, event.fields["exitcode"]) == (kind, "error", code)
    assert (event.fields.get("exc_type") == "KeyboardInterrupt") == (code == 255)


def test_no_exit_code_is_the_end_of_a_run_that_finished() -> None:
    assert [event.kind for event in events(FINISHED)] == ["run_started", "config", "run_finished"]


def test_an_error_that_was_logged_counts_before_and_after_the_first_step() -> None:
    error = row(_step=3, level="error", message="no data")
    data = log_of(error, row(_step=4, step=7, loss=2.5), error)
    assert [event.message for event in events(data)] == ["no data", "no data"]


def test_a_negative_exit_code_is_one() -> None:
    assert events(log_of(ended(-9)))[0].fields["exitcode"] == -9


def test_a_log_is_known_by_its_first_bytes_and_not_by_its_name() -> None:
    assert len(read(FAILED, path="train.log")[0]) == len(SOUND)
    assert samples(b":W&B is what we call it\nstep: 1 loss: 2.5\n") == [(1, {"loss": 2.5})]


def test_a_record_stands_at_its_number_in_the_file() -> None:
    found, _ = read(FAILED)
    at = [
        (each.start, number)
        for number, each in enumerate(WandbReader.framing.frames(FAILED), start=1)
    ]
    assert all((r.position.offset, r.position.line) in at for r in found)
    assert found[-1].position.line == len(at)


@given(st.lists(st.integers(0, len(FAILED)), max_size=12))
def test_in_whatever_pieces_it_comes_it_gives_the_same(cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(FAILED)]
    pieces = [FAILED[a:b] for a, b in pairwise(bounds)]
    assert repr(read(*pieces)) == repr((SOUND, 0))


@given(st.integers(0, len(FAILED)))
def test_cut_anywhere_it_gives_the_records_that_are_whole_and_no_damage(cut: int) -> None:
    found, errors = read(FAILED[:cut])
    whole = [frame for frame in WandbReader.framing.frames(FAILED) if frame.end <= cut]
    expected = [r for r in SOUND if r.position.line <= len(whole)]
    assert repr(found) == repr(expected)
    assert errors == 0


@given(st.integers(len(HEADER), len(FAILED) - 1), st.integers(1, 255))
def test_a_damaged_byte_is_counted_and_no_number_is_made_of_it(at: int, mask: int) -> None:
    damaged = bytearray(FAILED)
    damaged[at] ^= mask
    found, errors = read(bytes(damaged))
    values = {repr((r.step, r.values)) for r in found if isinstance(r, Sample)}
    sound = {repr((r.step, r.values)): r.position.offset for r in SOUND if isinstance(r, Sample)}
    assert values <= set(sound)
    # A fragment's damaged head may cost the rest of its block, and what goes on from there. The
    # record that holds the byte may have begun in the block before.
    (its,) = (
        frame.start for frame in WandbReader.framing.frames(FAILED) if frame.start <= at < frame.end
    )
    lost = {
        offset // BLOCK_BYTES
        for text, offset in sound.items()
        if text not in values and offset != its
    }
    assert lost <= {at // BLOCK_BYTES}
    assert errors >= 1 or len(found) < len(SOUND)


def test_damage_within_one_record_costs_that_record_alone() -> None:
    records = [row(_step=step, loss=1.5) for step in range(4)]
    data = log_of(*records)
    at = [each.start for each in WandbReader.framing.frames(data)][2] + 20
    damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    assert [step for step, _ in samples(damaged)] == [0, 1, 3]
    assert read(damaged)[1] == 1


def test_after_garbage_the_next_block_is_read() -> None:
    lost = [row(_step=step, loss=1.5) for step in range(3)]
    start = log_of(*lost)
    garbage = b"\xff" * (BLOCK_BYTES - len(start))
    rest = log_of(row(_step=3, loss=1.25), start=BLOCK_BYTES)
    assert [step for step, _ in samples(start + garbage + rest)] == [0, 1, 2, 3]
    assert read(start + garbage + rest)[1] == 1


@pytest.mark.parametrize("left", range(15))
def test_at_the_end_of_a_block_a_record_is_padded_or_divided(left: int) -> None:
    """`left` bytes remain of the block when the second record comes."""
    first = row(_step=1, loss=1.5)
    room = BLOCK_BYTES - left - len(log_of(first, field(3, b"x" * 20_000))) + 20_000
    filling = field(3, b"x" * room)
    assert len(log_of(first, filling)) == BLOCK_BYTES - left
    data = log_of(first, filling, row(_step=2, loss=1.25))
    assert samples(data) == [(1, {"loss": 1.5}), (2, {"loss": 1.25})]


def test_a_record_too_long_to_keep_is_passed_over() -> None:
    image = field(3, b"x" * (2 * RECORD_BYTES))
    data = log_of(row(_step=1, loss=1.5), image, row(_step=2, loss=1.25))
    pieces = [data[at : at + 65536] for at in range(0, len(data), 65536)]
    found, errors = read(*pieces)
    assert [r.step for r in found if isinstance(r, Sample)] == [1, 2]
    assert errors >= 1
    assert max(len(chunk.data) for chunk in chunks_of(pieces)) < RECORD_BYTES + 4 * BLOCK_BYTES


def test_the_step_is_the_trainers_own_where_it_tells_one() -> None:
    """`_step` counts the calls that logged."""
    data = log_of(
        row(**{"train/global_step": 500, "train/loss": 2.5, "_step": 1}),
        row(**{"eval/loss": 2.25, "_step": 2}),
        row(**{"train/global_step": 1000, "train/loss": 2.0, "_step": 3}),
    )
    assert samples(data) == [
        (500, {"loss": 2.5}),
        (None, {"eval_loss": 2.25}),
        (1000, {"loss": 2.0}),
    ]


def test_what_is_no_number_is_no_metric() -> None:
    image = {"_type": "image-file", "path": "media/x.png"}
    data = log_of(row(_step=1, loss=1.5, text="hi", type="event", picture=image, _runtime=3.5))
    assert samples(data) == [(1, {"loss": 1.5})]


def test_what_python_writes_for_numbers_that_are_not_finite_is_read() -> None:
    ((_, values),) = samples(log_of(row(_step=1, loss=math.nan, a=math.inf, b=-math.inf)))
    assert math.isnan(values["loss"])
    assert (values["a"], values["b"]) == (math.inf, -math.inf)


@given(st.binary(max_size=200))
def test_any_content_is_records_or_damage(content: bytes) -> None:
    found, errors = read(log_of(content, row(_step=5, loss=1.5)))
    assert found[-1].position.line == 2
    assert errors <= 1


def test_numbers_beyond_64_bits_leave_the_other_values_of_a_row() -> None:
    logs = (row(loss=math.nan, _step=1 << 63, grad_norm=10**400), row(loss=2.5, _step=7))
    (first, values), second = samples(log_of(*logs))
    assert (first, math.isnan(values["loss"]), values["grad_norm"]) == (None, True, math.inf)
    assert second == (7, {"loss": 2.5})
