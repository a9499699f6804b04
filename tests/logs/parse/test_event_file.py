"""TensorBoard's event files: the records of genuine files, and of damaged ones."""

from __future__ import annotations

import math
import struct
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.records import Record, Sample
from ldlm_monitor.logs.parse.event_file import EventFileReader
from ldlm_monitor.logs.source.split import RECORD_BYTES
from tests.logs.event_files import framed
from tests.logs.event_files.framed import FILES
from tests.logs.event_files.tfevents import VERSION, frame, scalar

TORCH = (FILES / "torch.tfevents.1").read_bytes()
NAME = "runs/exp/events.out.tfevents.1.host.1.0"


read = partial(framed.read, path=NAME)
chunks_of = partial(framed.chunks_of, path=NAME)


def steps_and_values(records: list[Record], name: str) -> list[tuple[int | None, float]]:
    samples = [record for record in records if isinstance(record, Sample)]
    return [(s.step, s.values[name]) for s in samples if name in s.values]


WRITERS = [("torch.tfevents.1", 8), ("tensors.tfevents.2", 4), ("tensorboardx.tfevents.3", 4)]


@pytest.mark.parametrize(("name", "last"), WRITERS)
def test_the_scalars_of_genuine_files_are_samples(name: str, last: int) -> None:
    found, errors = read((FILES / name).read_bytes())
    losses = steps_and_values(found, "loss")
    assert [step for step, _ in losses] == list(range(1, last + 1))
    for step, loss in losses:
        is_nan = name.startswith("torch.") and step == 7
        assert loss == pytest.approx(math.nan if is_nan else 3 / (step or 1), nan_ok=True)
    assert errors == 0
    assert all(1.795e9 < (record.time or 0) < 1.796e9 for record in found)


def test_names_are_canonical_and_texts_and_histograms_are_no_numbers() -> None:
    found, _ = read(TORCH)
    names = {name for record in found if isinstance(record, Sample) for name in record.values}
    assert names == {"loss", "learning_rate", "grad_norm", "eval_loss"}


def test_a_record_stands_at_its_frame() -> None:
    found, _ = read(TORCH)
    at = [
        (frame.start, number)
        for number, frame in enumerate(EventFileReader.framing.frames(TORCH), start=1)
    ]
    assert all((r.position.offset, r.position.line) in at for r in found)
    assert len({record.position.line for record in found}) == len(found)


@given(st.lists(st.integers(0, len(TORCH)), max_size=12))
def test_in_whatever_pieces_it_comes_it_gives_the_same(cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(TORCH)]
    pieces = [TORCH[a:b] for a, b in pairwise(bounds)]
    assert repr(read(*pieces)) == repr(read(TORCH))


@given(st.integers(0, len(TORCH)))
def test_cut_anywhere_it_gives_the_records_that_are_whole_and_no_damage(cut: int) -> None:
    found, errors = read(TORCH[:cut])
    whole = [record for record in read(TORCH)[0] if record.position.offset < cut]
    assert repr(found) == repr(whole[: len(found)])
    assert len(whole) - len(found) <= 1
    assert errors == 0


@given(st.integers(0, len(TORCH) - 1), st.integers(1, 255))
def test_a_damaged_byte_costs_one_record_and_is_counted(at: int, mask: int) -> None:
    damaged = bytearray(TORCH)
    damaged[at] ^= mask
    found, errors = read(bytes(damaged))
    whole = {repr(record) for record in read(TORCH)[0]}
    # A file that does not begin as one is text.
    if at >= 12:
        assert errors == 1
        values = [repr((r.step, r.values)) for r in found if isinstance(r, Sample)]
        sound = [r for r in read(TORCH)[0] if isinstance(r, Sample)]
        assert len(values) >= len(sound) - 1
        assert set(values) <= {repr((r.step, r.values)) for r in sound}
    else:
        assert len(found) <= len(whole)


def test_a_length_that_is_damaged_has_the_next_frame_looked_for_across_pieces() -> None:
    one, two, three = (scalar("loss", 1.5, step) for step in (1, 2, 3))
    broken = b"\xff" * 12 + two[12:]
    for cut in range(len(VERSION + one), len(VERSION + one + broken) + 1):
        data = VERSION + one + broken + three
        found, errors = read(data[:cut], data[cut:])
        assert [step for step, _ in steps_and_values(found, "loss")] == [1, 3]
        assert errors >= 1


def test_a_record_too_long_to_keep_is_passed_over() -> None:
    image = frame(b"\x09" + struct.pack("<d", 1.7e9) + b"\x2a" + b"x" * (2 * RECORD_BYTES))
    data = VERSION + scalar("loss", 1.5, 1) + image + scalar("loss", 1.25, 2)
    pieces = [data[at : at + 65536] for at in range(0, len(data), 65536)]
    found, errors = read(*pieces)
    assert steps_and_values(found, "loss") == [(1, 1.5), (2, 1.25)]
    assert [record.position.line for record in found] == [2, 4]
    assert [record.position.offset for record in found] == [
        len(VERSION),
        len(data) - len(scalar("loss", 1.25, 2)),
    ]
    assert errors == 0


def test_what_counts_epochs_does_not_set_the_run_back() -> None:
    events = [
        scalar("Loss/train", 2.5, 100),
        scalar("lr", 0.5, 100),
        scalar("Loss/val", 3.0, 1),
        scalar("Loss/train", 2.25, 200),
        scalar("Loss/train", 2.0, 150),
    ]
    found, _ = read(VERSION, *events)
    steps = [(record.step, *record.values) for record in found if isinstance(record, Sample)]
    assert steps == [
        (100, "loss"),
        (100, "learning_rate"),
        (None, "eval_loss"),
        (200, "loss"),
        (150, "loss"),
    ]


def test_the_folder_of_an_evaluation_tells_of_it() -> None:
    found, _ = read(VERSION, scalar("epoch_loss", 1.5, 3), path="logs/validation/e.tfevents.1.h.v2")
    assert steps_and_values(found, "eval_loss") == [(3, 1.5)]


@pytest.mark.parametrize("value", [0.1, 2.41, 1e-5, 123456792.0, -0.0, 3.4028234e38])
def test_a_number_of_four_bytes_is_the_one_that_was_meant(value: float) -> None:
    found, _ = read(VERSION, scalar("loss", value, 1))
    assert [repr(loss) for _, loss in steps_and_values(found, "loss")] == [
        repr(value if abs(value) < 3e38 else struct.unpack("<f", struct.pack("<f", value))[0])
    ]


@given(st.binary(max_size=200))
def test_any_content_is_numbers_or_damage(content: bytes) -> None:
    found, errors = read(VERSION, frame(content), scalar("loss", 1.5, 5))
    assert steps_and_values(found, "loss")[-1][1] == 1.5
    assert errors <= 1


@given(st.binary(max_size=300))
def test_text_that_is_no_event_file_stays_text(data: bytes) -> None:
    joined = b"".join(chunk.data for chunk in chunks_of([data[:5], data[5:]]))
    assert joined == data
