"""Which samples a step takes, and where they come from.

Both are functions of seed, step and rank alone, so that a run resumes anywhere at once
and exactly, without reading what it has already seen.
"""

from __future__ import annotations

import os
import signal
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from ldlm_trainer.batch import Batch, Samples
from ldlm_trainer.diffusion import L2T, MODES, T2L
from ldlm_trainer.errors import TrainerError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ldlm_trainer import config

TURNS = ("l2t", "t2l", "unconditional")
"""The modes of mode `sequential`, in turn."""
_ORDER, _MODES = 1, 2  # streams of the random numbers


class Taken(NamedTuple):
    """What one step takes over all ranks, in the order in which micro-batches share it."""

    step: int
    indices: NDArray[np.int64]
    modes: NDArray[np.int64]
    tokens: float
    """Tokens that are asked for, and latents; at least 1 each."""
    latents: float


class Plan:
    """What each step of a run takes. Raises `TrainerError` for a split that is too small."""

    def __init__(
        self, settings: config.Config, lengths: NDArray[np.int64], length: int, world: int
    ) -> None:
        self.settings = settings
        self.lengths = lengths
        self.length = length
        self.world = world
        self._stages = settings.stages(world)
        self._starts = [stage.first for stage in self._stages]
        self._latest: Taken | None = None
        if len(lengths) < self.effective(settings.schedule.steps):
            raise TrainerError(
                f"{len(lengths)} samples are fewer than one step takes", where="data.folder"
            )

    def stage(self, step: int) -> config.Stage:
        """The micro-batches of a step."""
        return self._stages[bisect_right(self._starts, step) - 1]

    def effective(self, step: int) -> int:
        """Samples of a step over all ranks."""
        stage = self.stage(step)
        return stage.times * stage.size * self.world

    def seen(self, step: int) -> int:
        """Samples that the steps before this one took."""
        ends = [*self._starts[1:], step]
        return sum(
            max(0, min(step, end) - stage.first) * stage.times * stage.size * self.world
            for stage, end in zip(self._stages, ends, strict=True)
        )

    def place(self, step: int) -> tuple[int, int]:
        """Epoch, and which step of it this one is, counted at its present batch size."""
        epoch, samples = divmod(self.seen(step), len(self.lengths))
        return epoch, samples // self.effective(step)

    def mode(self, step: int) -> str:
        """The mode of a step; `mixed` where each sample has its own."""
        objective = self.settings.objective
        if objective.mode != "sequential":
            return objective.mode
        return TURNS[step // objective.phase_steps % len(TURNS)]

    def takes(self, step: int) -> Taken:
        """The samples of a step, over all ranks."""
        if self._latest is None or self._latest.step != step:
            self._latest = self._take(step)
        return self._latest

    def part(self, step: int, micro: int, rank: int) -> slice:
        """Which of a step's samples are this micro-batch of this rank."""
        size = self.stage(step).size
        start = (micro * self.world + rank) * size
        return slice(start, start + size)

    def _take(self, step: int) -> Taken:
        indices, modes = self._indices(step), self._modes(step)
        with_text = modes != T2L
        if self.settings.objective.upstream_compat:
            tokens = int(with_text.sum()) * self.length
        else:
            tokens = int(self.lengths[indices][with_text].sum())
        latents = int((modes != L2T).sum())
        return Taken(step, indices, modes, float(max(tokens, 1)), float(max(latents, 1)))

    def _indices(self, step: int) -> NDArray[np.int64]:
        size, first = len(self.lengths), self.seen(step)
        epochs, places = np.divmod(np.arange(first, first + self.effective(step)), size)
        seed = self.settings.run.seed
        if epochs[0] == epochs[-1]:
            return _shuffled(seed, int(epochs[0]), size)[places]
        orders = [_shuffled(seed, int(epoch), size) for epoch in (epochs[0], epochs[-1])]
        return np.where(epochs == epochs[0], orders[0][places], orders[1][places])

    def _modes(self, step: int) -> NDArray[np.int64]:
        mode, size = self.mode(step), self.effective(step)
        if mode == "mixed":
            seeds = (self.settings.run.seed, _MODES, step)
            return np.random.default_rng(seeds).integers(0, len(MODES), size)
        return np.full(size, MODES[mode])


@lru_cache(maxsize=2)
def _shuffled(seed: int, epoch: int, size: int) -> NDArray[np.int64]:
    return np.random.default_rng((seed, _ORDER, epoch)).permutation(size)


class MicroBatches(Dataset[Batch]):
    """The micro-batches of one rank by (step, number). `before_read` is for tests of faults."""

    def __init__(
        self,
        samples: Samples,
        plan: Plan,
        rank: int,
        before_read: Callable[[int], None] = lambda step: None,
    ) -> None:
        self.samples, self.plan, self.rank = samples, plan, rank
        self.before_read = before_read

    def __getitem__(self, index: tuple[int, int]) -> Batch:
        step, micro = index
        self.before_read(step)
        taken = self.plan.takes(step)
        mine = self.plan.part(step, micro, self.rank)
        indices = taken.indices[mine]
        tokens, latents = self.samples.read(indices)
        return Batch(
            tokens=torch.from_numpy(tokens),
            lengths=torch.from_numpy(self.samples.lengths[indices]),
            latents=torch.from_numpy(latents),
            modes=torch.from_numpy(taken.modes[mine]),
            tokens_asked=taken.tokens / self.plan.world,
            latents_asked=taken.latents / self.plan.world,
        )


class StepOrder:
    """A sampler: (step, number) of every micro-batch from `start` on."""

    def __init__(self, plan: Plan, start: int, end: int) -> None:
        self.plan, self.start, self.end = plan, start, end

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for step in range(self.start, self.end):
            yield from ((step, micro) for micro in range(self.plan.stage(step).times))

    def __len__(self) -> int:
        return sum(self.plan.stage(step).times for step in range(self.start, self.end))


def loader(
    batches: MicroBatches, order: StepOrder, settings: config.Data, *, pin: bool
) -> DataLoader[Batch]:
    """The micro-batches of one rank in order, read by as many workers as the CPUs allow.

    torch refuses `prefetch_factor` and `persistent_workers` where there is no worker.
    """
    workers = min(settings.workers, _cpus_of_a_rank())
    several: dict[str, Any] = (
        {
            "prefetch_factor": settings.prefetch_factor,
            "persistent_workers": settings.persistent_workers,
        }
        if workers
        else {}
    )
    return DataLoader(
        batches,
        batch_size=None,
        sampler=order,
        num_workers=workers,
        pin_memory=pin and settings.pin_memory,
        worker_init_fn=_outlive_the_signal,
        generator=torch.Generator(),  # else it draws from the one that dropout has
        **several,
    )


def _outlive_the_signal(worker: int) -> None:
    """torchrun sends SIGTERM to workers too, and a rank needs them until it has stopped."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _cpus_of_a_rank() -> int:
    """CPUs that this process may use, shared with the other ranks of its node."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, len(os.sched_getaffinity(0)) // here)
