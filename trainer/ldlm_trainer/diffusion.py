"""The training objective: masked diffusion on text, continuous diffusion on latents.

Text: MDLM (Sahoo et al. 2024) with a linear schedule. Each token is masked with
probability t, and the cross-entropy at masked places, weighted by 1/t, bounds the
negative log-likelihood. Latents: v-prediction with a cosine schedule (Salimans & Ho
2022): x_t = alpha x + sigma e, v = alpha e - sigma x.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from torch import nn

    from ldlm_trainer.batch import Batch
    from ldlm_trainer.config import Objective

UNCONDITIONAL, L2T, T2L = range(3)
MODES = {"unconditional": UNCONDITIONAL, "l2t": L2T, "t2l": T2L}
LEAST_T = 1e-3
"""The weight 1/t is bounded by a thousand."""
SUMS = (
    "text_sum", "latent_sum", "hidden", "hits", "cosine", "latents", "latent_norm", "pred_norm",
)  # fmt: skip


class Noised(NamedTuple):
    """What the model sees, and what it is asked for."""

    tokens: Tensor
    latents: Tensor
    text_t: Tensor
    latent_t: Tensor
    present: Tensor
    scored: Tensor
    """(B, S): the weight of each position's cross-entropy; 0 where it is not asked."""
    target: Tensor
    """(B, K, D)"""
    asked: Tensor
    """(B,): 1 where the latent is asked for."""


def spread(size: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """(size,) times in [LEAST_T, 1), evenly spread from a random start, in random order.

    A low-discrepancy draw: each batch covers all times, so its loss varies less.
    """
    start = torch.rand(1, generator=generator, device=device)
    order = torch.randperm(size, generator=generator, device=device)
    return LEAST_T + (1 - LEAST_T) * ((order + start) / size)


def add_noise(
    batch: Batch, mask_id: int, objective: Objective, generator: torch.Generator
) -> Noised:
    """Draw times and noise. The same generator state gives the same result."""
    tokens, latents, modes = batch.tokens, batch.latents, batch.modes
    size, device = len(tokens), tokens.device
    text_t, latent_t = spread(size, generator, device), spread(size, generator, device)
    noise = torch.randn(latents.shape, generator=generator, device=device)
    draw = torch.rand(tokens.shape, generator=generator, device=device)
    present = torch.arange(tokens.shape[1], device=device) < batch.lengths[:, None]
    with_text, with_latent = modes != T2L, modes != L2T
    if objective.upstream_compat:
        text_t = torch.where(modes == L2T, 1.0, text_t)
        latent_t = torch.where(modes == T2L, 1.0, latent_t)
        present = torch.ones_like(present)
    text_t, latent_t = text_t * with_text, latent_t * with_latent
    hidden = (draw < text_t[:, None]) & present
    weight = 1 if objective.upstream_compat else 1 / text_t.clamp(min=LEAST_T)[:, None]
    alpha, sigma = (f(latent_t * math.pi / 2)[:, None, None] for f in (torch.cos, torch.sin))
    return Noised(
        tokens=tokens.masked_fill(hidden, mask_id),
        latents=alpha * latents + sigma * noise,
        text_t=text_t,
        latent_t=latent_t,
        present=present,
        scored=hidden * weight,
        target=noise if objective.upstream_compat else alpha * noise - sigma * latents,
        asked=with_latent.to(latents.dtype),
    )


def latent_losses(predicted: Tensor, target: Tensor, kind: str) -> Tensor:
    """(B,) losses of latents (B, K, D).

    `normalized_mse` is the mean squared error of vectors of length sqrt(D), as the latents of
    the data have: only the direction counts. `cosine` is 2 (1 - cos) / D, the same of vectors of
    length 1, which weighs D times less; 1 - cos itself would be a change of the weight by D / 2.
    """
    if kind == "normalized_mse":
        length = math.sqrt(target.shape[-1])
        predicted, target = (
            length * functional.normalize(each, dim=-1) for each in (predicted, target)
        )
    if kind == "cosine":
        cosine = functional.cosine_similarity(predicted, target, dim=-1)
        return (2 * (1 - cosine) / target.shape[-1]).mean(dim=1)
    return (predicted - target).square().mean(dim=(1, 2))


def micro_loss(
    model: nn.Module, batch: Batch, noised: Noised, objective: Objective, latent_weight: float
) -> tuple[Tensor, Tensor]:
    """The part of the loss that this micro-batch has in its step, and the sums behind it.

    Losses are divided by what all ranks ask for in the whole step (`batch.tokens_asked`,
    `batch.latents_asked`), so a token counts the same wherever it stands. Sums are in
    the order of `SUMS`, without gradient.
    """
    logits, predicted = model(
        noised.tokens, noised.latents, noised.text_t, noised.latent_t, noised.present
    )
    logits, predicted = logits.float(), predicted.float()
    entropy = functional.cross_entropy(
        logits.flatten(0, 1), batch.tokens.flatten(), reduction="none"
    )
    text = (entropy * noised.scored.flatten()).sum()
    kind = "cosine" if objective.upstream_compat else objective.latent_loss
    latent = (latent_losses(predicted, noised.target, kind) * noised.asked).sum()
    loss = text / batch.tokens_asked + latent_weight * latent / batch.latents_asked
    with torch.no_grad():
        hidden = noised.scored > 0
        hits = (logits.argmax(-1) == batch.tokens) & hidden
        cosine = functional.cosine_similarity(predicted, noised.target, dim=-1).mean(1)
        sums = torch.stack(
            (
                text,
                latent,
                hidden.sum(),
                hits.sum(),
                (cosine * noised.asked).sum(),
                noised.asked.sum(),
                batch.latents.norm(dim=-1).mean(1).sum(),
                predicted.norm(dim=-1).mean(1).sum(),
            )
        )
    return loss, sums
