"""What one forward pass of one rank reads."""

from typing import NamedTuple

from torch import Tensor


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
