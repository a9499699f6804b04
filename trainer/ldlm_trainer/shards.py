"""Data sets on disk: packed shards, and upstream's two files a sample.

Shards: `{folder}/{split}/tokens_0000.npy` uint16 or uint32 (N, S), `lengths_0000.npy`,
`latents_0000.npy` float16 (N, K, D), and `{folder}/index.json`. They are mapped, not
read: a sample costs no open file.

Upstream: `tokens/train/NAME_tokens.npz` (`input_ids`, `attention_mask`) and
`latents/train/NAME.npy`, for each sample.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ldlm_trainer.errors import TrainerError
from ldlm_trainer.network import Shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ldlm_trainer.batch import Samples

SHARD = 65_536
"""Samples of a shard."""
PAD, UNKNOWN, MASK = range(3)
PARTS = ("tokens", "lengths", "latents")


def read_index(folder: Path) -> dict[str, Any]:
    """What `write_shards` noted of a data set; raises `TrainerError`."""
    path = folder / "index.json"
    try:
        index: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TrainerError(
            error.strerror or str(error),
            where=str(path),
            remedy="make data with: python -m ldlm_trainer prepare FOLDER",
        ) from error
    except ValueError as error:
        raise TrainerError(f"not JSON: {error}", where=str(path)) from error
    return index


def write_shards(
    folder: Path,
    split: str,
    tokens: NDArray[np.int64],
    lengths: NDArray[np.int64],
    latents: NDArray[np.float32],
    *,
    vocabulary: int,
) -> dict[str, str]:
    """Write a split; the SHA-256 of each file, by its path below `folder`."""
    (folder / split).mkdir(parents=True, exist_ok=True)
    small = np.uint16 if vocabulary <= 1 << 16 else np.uint32
    integers = (tokens.astype(small), lengths.astype(np.int32))
    arrays: tuple[NDArray[Any], ...] = (*integers, latents.astype(np.float16))
    sums = {}
    for number, start in enumerate(range(0, len(tokens), SHARD)):
        for part, array in zip(PARTS, arrays, strict=True):
            path = folder / split / f"{part}_{number:04d}.npy"
            np.save(path, array[start : start + SHARD])
            sums[f"{split}/{path.name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return sums


class Shards:
    """A split in packed shards; raises `TrainerError` where it is not there or not whole."""

    def __init__(self, folder: Path, split: str) -> None:
        index = read_index(folder)
        self.mask_id = int(index["mask_id"])
        found = [sorted((folder / split).glob(f"{part}_*.npy")) for part in PARTS]
        if not found[0] or len({len(paths) for paths in found}) > 1:
            raise TrainerError(f"no whole split {split!r}", where=str(folder))
        self._tokens: list[NDArray[Any]]
        self._latents: list[NDArray[Any]]
        try:
            self._tokens, lengths, self._latents = (
                [np.load(path, mmap_mode="r") for path in paths] for paths in found
            )
        except (OSError, ValueError) as error:
            raise TrainerError(f"a shard cannot be read: {error}", where=str(folder)) from error
        self._starts = np.cumsum([0, *(len(shard) for shard in lengths)])
        self.lengths = np.concatenate(lengths).astype(np.int64)
        _, latents, dim = self._latents[0].shape
        self.shape = Shape(self._tokens[0].shape[1], int(index["vocabulary"]), latents, dim)

    def read(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Tokens and latents of these samples."""
        shards = np.searchsorted(self._starts, indices, side="right") - 1
        tokens = np.empty((len(indices), self.shape.length), np.int64)
        latents = np.empty((len(indices), self.shape.latents, self.shape.latent_dim), np.float32)
        for shard in np.unique(shards):
            here = shards == shard
            rows = indices[here] - self._starts[shard]
            tokens[here] = self._tokens[shard][rows]
            latents[here] = self._latents[shard][rows]
        return tokens, latents


class UpstreamFiles:
    """A split in upstream's layout. Every file that the folder holds belongs to it, by name.

    A sample that cannot be read is an error, not a sample of zeros.
    """

    def __init__(self, folder: Path, split: str) -> None:
        index = read_index(folder)
        self.mask_id = int(index["mask_id"])
        self._latents = folder / "latents" / split
        self._tokens = sorted((folder / "tokens" / split).glob("*_tokens.npz"))
        if not self._tokens:
            raise TrainerError(f"no *_tokens.npz of split {split!r}", where=str(folder))
        masks = [_npz(path)[1] for path in self._tokens]
        self.lengths = np.array([int(mask.sum()) for mask in masks], np.int64)
        latent = self._latent(self._tokens[0])
        self.shape = Shape(len(masks[0]), int(index["vocabulary"]), *latent.shape)

    def read(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Tokens and latents of these samples: two files are opened for each."""
        paths = [self._tokens[i] for i in indices]
        tokens = np.stack([_npz(path)[0] for path in paths]).astype(np.int64)
        return tokens, np.stack([self._latent(path) for path in paths])

    def _latent(self, tokens: Path) -> NDArray[np.float32]:
        path = self._latents / f"{tokens.name.removesuffix('_tokens.npz')}.npy"
        try:
            latent: NDArray[np.float32] = np.load(path).astype(np.float32)
        except (OSError, ValueError) as error:
            raise TrainerError(f"cannot be read: {error}", where=str(path)) from error
        return latent.reshape(-1, latent.shape[-1])


def _npz(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    try:
        with np.load(path) as held:
            return held["input_ids"].reshape(-1), held["attention_mask"].reshape(-1)
    except (OSError, ValueError, KeyError) as error:
        raise TrainerError(f"cannot be read: {error}", where=str(path)) from error


def export_upstream(samples: Samples, folder: Path, split: str) -> None:
    """Write a split in upstream's layout, latents as (D,) where a sample has one."""
    tokens_to, latents_to = folder / "tokens" / split, folder / "latents" / split
    for place in (tokens_to, latents_to):
        place.mkdir(parents=True, exist_ok=True)
    for i, length in enumerate(samples.lengths):
        tokens, latents = samples.read(np.array([i]))
        mask = (np.arange(tokens.shape[1]) < length).astype(np.int64)
        np.savez(tokens_to / f"{i:08d}_tokens.npz", input_ids=tokens[0], attention_mask=mask)
        np.save(latents_to / f"{i:08d}.npy", latents[0].squeeze(0))


def export(folder: Path, out: Path) -> None:
    """Write both splits of packed shards in upstream's layout, with their index."""
    index = read_index(folder)
    for split in index["samples"]:
        export_upstream(Shards(folder, split), out, split)
    (out / "index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")


def open_split(folder: Path, layout: str, split: str) -> Samples:
    """A split of either layout."""
    return Shards(folder, split) if layout == "shards" else UpstreamFiles(folder, split)
