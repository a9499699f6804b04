"""The loss on held-out data: every rank its share, one sum over all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from ldlm_trainer.batch import Batch, Samples
from ldlm_trainer.data import TURNS
from ldlm_trainer.diffusion import MODES, SUMS, add_noise, micro_loss

if TYPE_CHECKING:
    from ldlm_trainer.config import Config
    from ldlm_trainer.rank_process import Process

NOISE = 20_260_101
"""Seed of the noise: the same in every evaluation, so that their losses compare."""


@torch.no_grad()
def evaluate(
    model: nn.Module,
    samples: Samples,
    settings: Config,
    process: Process,
    *,
    shuffled: bool = False,
) -> dict[str, float]:
    """`eval_loss`, `eval_text_loss` (nats a token), `eval_latent_loss` over the first batches.

    `shuffled` gives every sample the latent of another: how much worse that is shows
    how much the model makes of it.
    """
    objective, size = settings.objective, settings.data.batch_size
    names = [objective.mode] if objective.mode in MODES else [*TURNS]
    total = torch.zeros(len(SUMS) + 1, device=process.device)
    was_training = model.training
    model.eval()
    end = min(len(samples.lengths), settings.run.eval_batches * size)
    batches = -(-end // size)
    # As many passes on each rank, because those of a sharded model wait for each other.
    for first in range(0, batches, process.world):
        number = (first + process.rank) % batches
        indices = np.arange(number * size, min(number * size + size, end))
        tokens, latents = samples.read(indices)
        if shuffled:
            latents = samples.read((indices + end // 2) % end)[1]
        mode = MODES[names[number % len(names)]]
        batch = Batch(
            torch.from_numpy(tokens).to(process.device),
            torch.from_numpy(samples.lengths[indices]).to(process.device),
            torch.from_numpy(latents).to(process.device),
            torch.full((len(indices),), mode, device=process.device),
            1.0,
            1.0,
        )
        noise = torch.Generator(process.device).manual_seed(NOISE + number)
        noised = add_noise(batch, samples.mask_id, objective, noise)
        _, sums = micro_loss(model, batch, noised, objective, 1.0)
        asked = batch.lengths.sum() if mode != MODES["t2l"] else torch.zeros_like(sums[0])
        if first + process.rank < batches:
            total += torch.cat((sums, asked[None]))
    model.train(was_training)
    process.total(total)
    held = dict(zip((*SUMS, "tokens"), total.tolist(), strict=True))
    text = held["text_sum"] / max(held["tokens"], 1.0)
    latent = held["latent_sum"] / max(held["latents"], 1.0)
    return {
        "eval_loss": text + objective.latent_weight * latent,
        "eval_text_loss": text,
        "eval_latent_loss": latent,
    }
