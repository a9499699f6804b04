"""The optimizer, and the learning rate over the steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from ldlm_trainer.config import Optim, Schedule


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Matrices decay; biases, norms, positions and embeddings do not."""
    kept = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    decaying: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim > 1 and id(parameter) not in kept and "positions" not in name
        (decaying if is_matrix else free).append(parameter)
    return [
        {"params": decaying, "weight_decay": weight_decay},
        {"params": free, "weight_decay": 0.0},
    ]


def adamw(model: nn.Module, settings: Optim) -> tuple[torch.optim.AdamW, str]:
    """The optimizer, and "" or why it is not fused although that was asked for.

    Whether a fused step works shows only when one is taken, so one is, on a spare
    parameter of the same kind.
    """
    first = next(model.parameters())
    why = _fused_fails(first) if settings.fused else ""
    optimizer = torch.optim.AdamW(
        parameter_groups(model, settings.weight_decay),
        lr=settings.lr,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        fused=settings.fused and not why,
    )
    return optimizer, why


def _fused_fails(like: torch.Tensor) -> str:
    spare = nn.Parameter(torch.zeros(2, device=like.device, dtype=like.dtype))
    spare.grad = torch.zeros_like(spare)
    try:
        torch.optim.AdamW([spare], fused=True).step()
    except (RuntimeError, NotImplementedError, ValueError) as error:
        return str(error).partition("\n")[0]
    return ""


class Skipper:
    """Steps of a fused optimizer, which itself skips on the device: nothing waits for a verdict.

    That is what GradScaler asks of it; at a scale that stays 1 nothing else of it is left.
    """

    def __init__(self, device: torch.device) -> None:
        self._scaler = torch.amp.GradScaler(device.type, init_scale=1.0)
        self._scaler.scale(torch.ones((), device=device))  # makes its tensors

    def step(self, optimizer: torch.optim.Optimizer, norm: torch.Tensor) -> None:
        """Apply the gradients, unless their norm is not finite."""
        parameters = (p for group in optimizer.param_groups for p in group["params"])
        first = next(p.grad for p in parameters if p.grad is not None)
        # Clipping by an infinite norm leaves zeros, where finite gradients overflowed in the sum.
        first.add_(norm * 0)
        self._scaler.step(optimizer)
        self._scaler.update(1.0)


def learning_rate(step: int, peak: float, settings: Schedule) -> float:
    """Linear warm-up, then a cosine down to `floor` times the peak, where it stays.

    With `restart_every` every cycle warms up to its own, lower peak. Steps count from
    0, and the first one has a rate already.
    """
    length = settings.restart_every or settings.steps
    cycle, place = divmod(step, length) if settings.restart_every else (0, step)
    peak *= settings.restart_decay**cycle
    if place < settings.warmup:
        return peak * (place + 1) / settings.warmup
    progress = min(1.0, (place - settings.warmup) / max(1, length - settings.warmup))
    part = settings.floor + (1 - settings.floor) * 0.5 * (1 + math.cos(math.pi * progress))
    return peak * part


def is_restart(step: int, settings: Schedule) -> bool:
    """Whether a new cycle of the schedule begins with this step."""
    return bool(settings.restart_every and step and step % settings.restart_every == 0)


class Plateau:
    """A factor on the schedule that falls when evaluations no longer improve.

    It is fed with the loss that all ranks have in common, so that they agree.
    """

    def __init__(self, settings: Schedule) -> None:
        self.settings = settings
        self.factor = 1.0
        self.best = math.inf
        self.since = 0

    def observe(self, loss: float, step: int) -> bool:
        """Take the loss of an evaluation after `step` steps; True where the factor was lowered.

        NaN is no progress. A threshold in parts of the best loss's size holds for negative
        losses too, where `best * 0.99` would ask for less than nothing.
        """
        settings = self.settings
        margin = settings.plateau_threshold * abs(self.best) if math.isfinite(self.best) else 0.0
        if loss < self.best - margin:
            self.best, self.since = loss, step
            return False
        if not settings.plateau_patience or step - self.since < settings.plateau_patience:
            return False
        self.factor *= settings.plateau_factor
        self.since = step
        return True

    def applied(self, rate: float) -> float:
        """The rate of the schedule after all reductions."""
        return min(rate, max(rate * self.factor, self.settings.plateau_min_lr))

    def state(self) -> dict[str, float]:
        """For a checkpoint; an infinite `best` is left out."""
        state = {"factor": self.factor, "since": self.since}
        return state | ({"best": self.best} if math.isfinite(self.best) else {})

    def restore(self, state: dict[str, float]) -> None:
        """Go on from a checkpoint."""
        self.factor, self.since = state["factor"], int(state["since"])
        self.best = state.get("best", math.inf)
