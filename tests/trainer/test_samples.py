"""Data: what a step takes, what lies on disk, and that latents follow from their text."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_trainer.errors import TrainerError

pytest.importorskip("torch", reason="torch is not installed: pip install '.[trainer]'")

import numpy as np
import torch

from ldlm_trainer.config import Config, load
from ldlm_trainer.data import MicroBatches, Plan, StepOrder, loader
from ldlm_trainer.prepare import prepare, split_documents
from ldlm_trainer.shards import MASK, Shards, UpstreamFiles, export, export_upstream, write_shards

Make = Callable[..., Config]


def plan(world: int, samples: int = 100, **settings: object) -> Plan:
    pairs = [f"{key.replace('__', '.')}={value}" for key, value in settings.items()]
    return Plan(load(None, pairs), np.full(samples, 8), 8, world)


@given(samples=st.integers(40, 90), steps=st.integers(1, 30))
def test_every_epoch_shows_every_sample_once(samples: int, steps: int) -> None:
    taken = plan(2, samples, schedule__effective_batch=16)
    seen = np.concatenate([taken.takes(step).indices for step in range(steps)])
    whole = len(seen) // samples * samples
    counts = np.bincount(seen[:whole], minlength=samples)
    assert (counts == whole // samples).all()
    assert len(np.unique(seen[whole:])) == len(seen) - whole


def test_what_a_step_takes_does_not_depend_on_the_number_of_ranks() -> None:
    alone, four = (plan(world, schedule__effective_batch=16) for world in (1, 4))
    assert (alone.takes(7).indices == four.takes(7).indices).all()
    parts = [four.takes(7).indices[four.part(7, 0, rank)] for rank in range(4)]
    assert (np.concatenate(parts) == alone.takes(7).indices).all()


def test_a_growing_batch_goes_on_where_the_smaller_one_ended() -> None:
    growing = plan(1, schedule__effective_batch=8, schedule__batch_growth="[[3, 16]]")
    assert [growing.effective(step) for step in range(5)] == [8, 8, 8, 16, 16]
    assert [growing.seen(step) for step in range(6)] == [0, 8, 16, 24, 40, 56]


def test_mixed_draws_every_mode_and_the_same_ones_again() -> None:
    mixed = plan(1, 100, data__batch_size=90, objective__mode="mixed")
    modes = mixed.takes(3).modes
    assert set(modes.tolist()) == {0, 1, 2}
    assert (
        modes == plan(1, 100, data__batch_size=90, objective__mode="mixed").takes(3).modes
    ).all()


def test_sequential_takes_turns() -> None:
    turns = plan(1, objective__mode="sequential", objective__phase_steps=2)
    assert [turns.mode(step) for step in (0, 1, 2, 4, 6)] == [
        "l2t", "l2t", "t2l", "unconditional", "l2t",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "compat", "tokens", "latents"),
    [("l2t", "false", 30, 1), ("l2t", "true", 48, 1), ("t2l", "false", 1, 6)],
)
def test_a_step_counts_the_words_that_it_has_and_upstreams_those_that_fit(
    mode: str, compat: str, tokens: int, latents: int
) -> None:
    given = [f"objective.mode={mode}", f"objective.upstream_compat={compat}", "data.batch_size=6"]
    taken = Plan(load(None, given), np.full(100, 5), 8, 1).takes(0)
    assert (taken.tokens, taken.latents) == (tokens, latents)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_without_workers_and_with_some_reads_the_same(
    settings: Make, data: Path, workers: int
) -> None:
    """torch refuses prefetch_factor and persistent_workers where there are none."""
    chosen = settings(data__workers=workers, schedule__effective_batch=8)
    samples = Shards(data, "train")
    taken = Plan(chosen, samples.lengths, samples.shape.length, 1)
    read = list(
        loader(MicroBatches(samples, taken, 0), StepOrder(taken, 2, 4), chosen.data, pin=False)
    )
    assert len(read) == 4
    expected = MicroBatches(samples, taken, 0)[2, 1]
    assert torch.equal(read[1].tokens, expected.tokens)
    assert read[1].tokens_asked == expected.tokens_asked


def test_no_document_is_in_both_splits() -> None:
    documents = [(f"doc {i}", [f"The {i} words of it stay here."]) for i in range(400)]
    documents += [("again", ["The 7 words of it stay here."])]
    splits = split_documents(iter(documents))
    assert splits["validation"]
    assert not set(splits["train"]) & set(splits["validation"])
    assert sum(map(len, splits.values())) == 400


def test_the_same_text_gives_the_same_data(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("".join(f"Line {i} is of {i * 7} things and more.\n" for i in range(300)))
    for folder in ("a", "b"):
        prepare(tmp_path / folder, text=text, length=16)
    first, second = ((tmp_path / folder / "index.json").read_text() for folder in ("a", "b"))
    assert first == second


def test_upstreams_files_hold_the_same_samples(tmp_path: Path, data: Path) -> None:
    text = tmp_path / "text"
    text.write_text("".join(f"Line {i} is of {i * 7} things and more.\n" for i in range(60)))
    prepare(tmp_path / "packed", text=text, length=16)
    export(tmp_path / "packed", tmp_path / "files")
    packed, files = Shards(tmp_path / "packed", "train"), UpstreamFiles(tmp_path / "files", "train")
    chosen = np.array([3, 0, 11])
    for ours, theirs in zip(packed.read(chosen), files.read(chosen), strict=True):
        assert (ours == theirs).all()
    assert packed.shape == files.shape
    assert (packed.lengths == files.lengths).all()
    with np.load(tmp_path / "files/tokens/train/00000003_tokens.npz") as held:
        assert set(held) == {"input_ids", "attention_mask"}
    assert np.load(tmp_path / "files/latents/train/00000003.npy").shape == (32,)


def test_a_damaged_sample_is_an_error_and_no_sample_of_zeros(tmp_path: Path, data: Path) -> None:
    export_upstream(_few(data, tmp_path), tmp_path / "files", "train")
    (tmp_path / "files/index.json").write_text((data / "index.json").read_text())
    files = UpstreamFiles(tmp_path / "files", "train")
    (tmp_path / "files/latents/train/00000001.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(TrainerError, match=r"00000001\.npy"):
        files.read(np.array([1]))


def test_samples_are_found_across_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ldlm_trainer.shards.SHARD", 4)
    tokens = np.arange(80).reshape(10, 8)
    latents = np.arange(20, dtype=np.float32).reshape(10, 1, 2)
    write_shards(tmp_path, "train", tokens, np.full(10, 8), latents, vocabulary=100)
    (tmp_path / "index.json").write_text(f'{{"vocabulary": 100, "mask_id": {MASK}}}')
    chosen = np.array([9, 0, 4, 3])
    found = Shards(tmp_path, "train").read(chosen)
    assert (found[0] == tokens[chosen]).all()
    assert (found[1] == latents[chosen]).all()


def _few(data: Path, tmp_path: Path) -> Shards:
    samples = Shards(data, "train")
    tokens, latents = samples.read(np.arange(3))
    sizes = samples.lengths[:3]
    write_shards(tmp_path / "few", "train", tokens, sizes, latents, vocabulary=2048)
    (tmp_path / "few/index.json").write_text((data / "index.json").read_text())
    return Shards(tmp_path / "few", "train")
