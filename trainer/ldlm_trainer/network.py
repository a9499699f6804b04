"""A multimodal diffusion transformer: text and latents, one attention over both.

Each stream has its own projections and MLP, and is modulated by the diffusion times
(Esser et al. 2024, "Scaling Rectified Flow Transformers", section 4, MM-DiT).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from ldlm_trainer import config

TIME_SCALE = 1000.0
"""Times are in [0, 1]; their sinusoids differ for near ones only after scaling."""
FREQUENCIES = 128


@dataclass(frozen=True, slots=True)
class Shape:
    """What the data say: tokens a sample, vocabulary, latent vectors a sample, their size."""

    length: int
    vocabulary: int
    latents: int
    latent_dim: int


class Stream(nn.Module):
    """What one modality has of its own in a block."""

    def __init__(self, width: int, heads: int, dropout: float, qk_norm: bool) -> None:
        super().__init__()
        self.heads = heads
        self.modulation = nn.Linear(width, 6 * width)
        self.norm_attention = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv = nn.Linear(width, 3 * width)
        self.norm_q = nn.RMSNorm(width // heads) if qk_norm else nn.Identity()
        self.norm_k = nn.RMSNorm(width // heads) if qk_norm else nn.Identity()
        self.out = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width, elementwise_affine=False)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(dropout)

    def modulations(self, condition: Tensor) -> tuple[Tensor, ...]:
        """Shift, scale and gate of the attention, then of the MLP, each (B, 1, width)."""
        return tuple(self.modulation(functional.silu(condition))[:, None].chunk(6, dim=-1))

    def project(self, x: Tensor, shift: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (B, heads, N, width / heads)."""
        x = self.norm_attention(x) * (1 + scale) + shift
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.norm_q(q).to(v.dtype), self.norm_k(k).to(v.dtype), v

    def finish(self, x: Tensor, attended: Tensor, modulations: tuple[Tensor, ...]) -> Tensor:
        """Residuals of the attention and of the MLP."""
        _, _, gate, shift_mlp, scale_mlp, gate_mlp = modulations
        x = x + gate * self.dropout(self.out(attended))
        inner = self.norm_mlp(x) * (1 + scale_mlp) + shift_mlp
        return x + gate_mlp * self.dropout(self.mlp(inner))


class Block(nn.Module):
    """One layer of both streams."""

    def __init__(self, settings: config.Model) -> None:
        super().__init__()
        shape = (settings.width, settings.heads, settings.dropout, settings.qk_norm)
        self.text = Stream(*shape)
        self.latent = Stream(*shape)
        self.explicit = settings.attention == "explicit"

    def forward(
        self, text: Tensor, latent: Tensor, condition: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """`mask` (B, 1, 1, N) is true where a position may be attended to."""
        of_text, of_latent = self.text.modulations(condition), self.latent.modulations(condition)
        parts = zip(
            self.text.project(text, *of_text[:2]),
            self.latent.project(latent, *of_latent[:2]),
            strict=True,
        )
        q, k, v = (torch.cat(pair, dim=2) for pair in parts)
        attended = (self._explicit if self.explicit else self._sdpa)(q, k, v, mask)
        attended = attended.transpose(1, 2).flatten(2)
        here, there = attended.split((text.shape[1], latent.shape[1]), dim=1)
        return self.text.finish(text, here, of_text), self.latent.finish(latent, there, of_latent)

    @staticmethod
    def _sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    @staticmethod
    def _explicit(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        return scores.masked_fill(~mask, -math.inf).softmax(dim=-1) @ v


class Backbone(nn.Module):
    """The blocks, some of which recompute their activations."""

    def __init__(self, settings: config.Model) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(settings) for _ in range(settings.depth))
        self.every = settings.checkpoint_every
        self.keep_rng = settings.dropout > 0
        if settings.compile:
            for block in self.blocks:
                block.compile()

    def forward(
        self, text: Tensor, latent: Tensor, condition: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """`mask` (B, N) is true at positions that hold something."""
        wide = mask[:, None, None, :]
        for i, block in enumerate(self.blocks):
            if self.every and self.training and i % self.every == 0:
                text, latent = checkpoint(
                    block, text, latent, condition, wide,
                    use_reentrant=False, preserve_rng_state=self.keep_rng,
                )  # fmt: skip
            else:
                text, latent = block(text, latent, condition, wide)
        return text, latent


class MultimodalDiT(nn.Module):
    """Predicts tokens, and the latents' velocity, from noisy ones and their times."""

    def __init__(self, settings: config.Model, shape: Shape) -> None:
        super().__init__()
        width = settings.width
        self.embed = nn.Embedding(shape.vocabulary, width)
        self.text_positions = nn.Parameter(torch.empty(shape.length, width))
        self.latent_in = nn.Linear(shape.latent_dim, width)
        self.latent_positions = nn.Parameter(torch.empty(shape.latents, width))
        self.condition = nn.Sequential(
            nn.Linear(4 * FREQUENCIES, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.backbone = _backbone(settings)
        self.text_norm = nn.LayerNorm(width)
        self.text_head = nn.Linear(width, shape.vocabulary)
        self.latent_norm = nn.LayerNorm(width)
        self.latent_head = nn.Linear(width, shape.latent_dim)
        frequencies = torch.logspace(0, -4, FREQUENCIES) * TIME_SCALE
        self.frequencies: Tensor
        self.register_buffer("frequencies", frequencies, persistent=False)
        _initialise(self)

    def forward(
        self, tokens: Tensor, latents: Tensor, text_t: Tensor, latent_t: Tensor, present: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits (B, S, V) and velocities (B, K, D).

        `tokens` (B, S), `latents` (B, K, D), times (B,) in [0, 1], `present` (B, S)
        true where a token is no padding.
        """
        angles = torch.stack((text_t, latent_t), dim=1)[..., None] * self.frequencies
        times = torch.cat((angles.sin(), angles.cos()), dim=-1).flatten(1)
        condition = self.condition(times.to(self.text_positions.dtype))
        text = self.embed(tokens) + self.text_positions
        latent = self.latent_in(latents.to(self.text_positions.dtype)) + self.latent_positions
        everywhere = present.new_ones(latents.shape[:2])
        mask = torch.cat((present, everywhere), dim=1)
        text, latent = self.backbone(text, latent, condition, mask)
        return self.text_head(self.text_norm(text)), self.latent_head(self.latent_norm(latent))


def _backbone(settings: config.Model) -> nn.Module:
    if settings.backend == "own":
        return Backbone(settings)
    from ldlm_trainer.mmdit_backbone import MmditBackbone

    return MmditBackbone(settings)


def _initialise(model: MultimodalDiT) -> None:
    """Small weights; streams begin as the identity (adaLN-Zero, Peebles & Xie 2023)."""
    for name, module in model.named_modules():
        if "backbone.package" in name:
            continue
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
        if name.endswith("modulation"):
            nn.init.zeros_(module.get_parameter("weight"))
    for positions in (model.text_positions, model.latent_positions):
        nn.init.normal_(positions, std=0.02)
