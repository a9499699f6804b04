"""The `mmdit` package (extra `[mmdit]`) as backbone, called as upstream calls it.

Kept for comparison. Version 0.3.0 accepts `qk_rmsnorm` and ignores it, and keeps the
attention scores in memory; its parameters differ from one release to the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from ldlm_trainer.errors import TrainerError

if TYPE_CHECKING:
    from ldlm_trainer import config


class MmditBackbone(nn.Module):
    """`mmdit.mmdit_generalized_pytorch.MMDiT` with two residual streams, as upstream's."""

    def __init__(self, settings: config.Model) -> None:
        super().__init__()
        try:
            from mmdit.mmdit_generalized_pytorch import MMDiT
        except ImportError as error:
            raise TrainerError(
                "model.backend=mmdit needs the package mmdit", remedy="pip install mmdit==0.3.0"
            ) from error
        self.package: nn.Module = MMDiT(
            depth=settings.depth,
            dim_modalities=(settings.width, settings.width),
            dim_cond=settings.width,
            qk_rmsnorm=settings.qk_norm,
            num_residual_streams=2,
        )

    def forward(
        self, text: Tensor, latent: Tensor, condition: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """`mask` (B, N) is true at positions that hold something."""
        length = text.shape[1]
        text, latent = self.package(
            modality_tokens=(text, latent),
            modality_masks=(mask[:, :length], mask[:, length:]),
            time_cond=condition,
        )
        return text, latent
