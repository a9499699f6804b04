"""The training callback: a rank's own numbers, signs of life and stacks, written as it trains.

A guest in the training process: it needs the standard library alone, never raises
into the loop or makes it wait for a device or a disk, and writes its first problem to stderr.
docs/callback.md shows how to use it; the adapters are modules of their own
(`lightning`, `huggingface`, `accelerate`).
"""

from ldlm_callback.health import HealthCallback

__all__ = ["HealthCallback"]
