"""What the loop reads: the samples of a split, and micro-batches of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from torch import Tensor

from ldlm_trainer.network import Shape

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Samples(Protocol):
    """A split of a data set."""

    shape: Shape
    lengths: NDArray[np.int64]
    mask_id: int

    def read(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Tokens (B, S) and latents (B, K, D)."""


class Batch(NamedTuple):
    """One micro-batch of one rank."""

    tokens: Tensor
    """(B, S) int64"""
    lengths: Tensor
    """(B,) tokens that are no padding"""
    latents: Tensor
    """(B, K, D) float32"""
    modes: Tensor
    """(B,) a value of `MODES` each"""
    tokens_asked: float
    """Tokens that the whole step asks for, over the number of ranks: DDP takes the mean."""
    latents_asked: float
    """The same of latents."""
