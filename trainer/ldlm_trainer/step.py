"""One optimizer step, the same on every rank: gradients of some micro-batches, then AdamW."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from ldlm_trainer import optim
from ldlm_trainer.diffusion import SUMS, add_noise, micro_loss
from ldlm_trainer.rank_process import forget_gradients, whole

if TYPE_CHECKING:
    from ldlm_trainer.batch import Batch
    from ldlm_trainer.config import Config, Objective
    from ldlm_trainer.faults import Faults
    from ldlm_trainer.rank_process import Process

HEAD = ("own_text", "own_latent", "grad_norm", "stop")
"""What stands before `SUMS` in a vector of results."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a step came to. What is not called own, and no seconds, is the same on every rank.

    `own_loss` and its parts are this rank's; the mean of all ranks' is the loss.
    `seconds` is the whole step, `own_seconds` the part in which no other rank was waited
    for, `data_seconds` the part of that in which data were.
    """

    step: int
    own_loss: float
    own_text: float
    own_latent: float
    grad_norm: float
    stop: bool
    sums: dict[str, float]
    tokens_asked: float
    latents_asked: float
    lr: float
    latent_weight: float
    loss_scale: float
    seconds: float
    own_seconds: float
    data_seconds: float

    @property
    def is_finite(self) -> bool:
        """False: no rank took the step."""
        return math.isfinite(self.grad_norm)


_MEMORY = 0.99
"""What the mean of a loss keeps in each step: it follows in some 100 steps, as the noise of one
batch should not move the weight. A choice."""
_FARTHEST = 100.0
"""Bounds how far the balance moves the weight either way: a latent loss near 0 is learned, and
needs no more weight. A choice."""


class Balance:
    """The weight of the latent loss: fixed, or such that both losses count alike.

    It looks at the losses of all ranks, so that every rank has the same weight.
    """

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self.means: list[float] | None = None
        """Of text and latent loss, each over the steps that had both."""

    @property
    def weight(self) -> float:
        """The weight of the next losses."""
        given = self._objective.latent_weight
        if self._objective.weighting == "fixed" or self.means is None:
            return given
        text, latent = self.means
        return given * min(max(text / latent, 1 / _FARTHEST), _FARTHEST)

    def observe(self, result: Result) -> None:
        """Take the losses of a step; one without both, or not finite, changes nothing."""
        text = result.sums["text_sum"] / result.tokens_asked
        latent = result.sums["latent_sum"] / result.latents_asked
        if not (result.is_finite and 0 < text < math.inf and 0 < latent < math.inf):
            return
        old = self.means or [text, latent]
        new = zip(old, (text, latent), strict=True)
        self.means = [_MEMORY * before + (1 - _MEMORY) * now for before, now in new]


class Stepper:
    """Takes steps. Their results come one step late on a GPU, so that it never waits.

    A gradient that is not finite on one rank is so on all, because gradients are
    averaged: every rank looks at the same norm and skips the same step. No rank decides
    anything from a loss of its own, or the others would wait for it for ever.
    """

    def __init__(
        self, settings: Config, process: Process, optimizer: torch.optim.AdamW, faults: Faults
    ) -> None:
        self.settings, self.process, self.faults = settings, process, faults
        self.optimizer = optimizer
        self.balance = Balance(settings.objective)
        self._late = 1 if process.device.type == "cuda" else 0
        self.scaler = self.skipper = None
        if settings.optim.precision == "fp16":
            self.scaler = torch.amp.GradScaler(process.device.type)
        elif self._late and optimizer.defaults["fused"] and not settings.ddp.shard:
            self.skipper = optim.Skipper(process.device)
        self._waiting: deque[tuple[Tensor, torch.cuda.Event | None, dict[str, float]]] = deque()

    def take(
        self, step: int, model: nn.Module, batches: Iterator[Batch], count: int, *,
        mask_id: int, stop: bool,
    ) -> list[Result]:  # fmt: skip
        """Step number `step` of `count` micro-batches; the results that are known by now."""
        began = time.perf_counter()
        self.faults.before_forward(step, self.process.device)
        sums = torch.zeros(len(SUMS), device=self.process.device)
        own_seconds = data_seconds = 0.0
        for micro in range(count):
            start = time.perf_counter()
            batch = self._to_device(next(batches))
            data_seconds += time.perf_counter() - start
            is_last = micro == count - 1
            with self._reduced(model, is_last=is_last):
                noise = self._generator(step, micro)
                loss, part = self._forward(model, batch, mask_id, noise)
                loss, part = self.faults.bend(step, loss, part)
                if is_last:
                    own_seconds = time.perf_counter() - began
                (loss if self.scaler is None else self.scaler.scale(loss)).backward()
            sums += part
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        parameters = [p for p in model.parameters() if p.requires_grad]
        limit = self.settings.optim.clip_norm or math.inf
        norm = whole(nn.utils.clip_grad_norm_(parameters, limit)).float()
        self._update(norm)
        own = sums[:2].clone()
        # Filled there: to copy a number from the host would wait for the GPU.
        common = torch.cat((sums.new_full((1,), float(stop)), sums))
        common = self.process.total(common)
        tokens, latents = batch.tokens_asked, batch.latents_asked
        facts = {"step": step, "tokens": tokens, "latents": latents, "data": data_seconds}
        facts |= {"latent_weight": self.balance.weight, "loss_scale": self._loss_scale(step)}
        facts |= {"lr": float(self.optimizer.param_groups[0]["lr"])}
        facts |= {"own": own_seconds, "all": time.perf_counter() - began}
        self._push(torch.cat((own, norm[None], common)), facts)
        found = self.results(keep=self._late)
        facts["all"] = time.perf_counter() - began  # with the wait for a GPU, which is behind
        if not all(result.is_finite for result in found):
            forget_gradients(model)
        return found

    def _forward(
        self, model: nn.Module, batch: Batch, mask_id: int, noise: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        objective = self.settings.objective
        noised = add_noise(batch, mask_id, objective, noise)
        precision = self.settings.optim.precision
        kind = torch.float16 if precision == "fp16" else torch.bfloat16
        autocast = precision in ("bf16", "fp16")
        with torch.autocast(self.process.device.type, kind, enabled=autocast):
            return micro_loss(model, batch, noised, objective, self.balance.weight)

    def probe(self, model: nn.Module, batch: Batch, mask_id: int) -> Tensor:
        """The loss of a micro-batch, for its graph alone."""
        loss, _ = self._forward(model, self._to_device(batch), mask_id, self._generator(0, 0))
        return loss

    def _reduced(self, model: nn.Module, *, is_last: bool) -> AbstractContextManager[object]:
        """Gradients are averaged over ranks with the last micro-batch of a step."""
        if isinstance(model, FSDPModule):
            model.set_requires_gradient_sync(is_last or not self.settings.ddp.no_sync)
            return nullcontext()
        if is_last or not self.settings.ddp.no_sync or self.process.world == 1:
            return nullcontext()
        held: AbstractContextManager[object] = model.no_sync()  # type: ignore[operator]
        return held

    def _update(self, norm: Tensor) -> None:
        """Apply the gradients, unless their norm is not finite, and forget them."""
        if self.scaler is not None:
            self.scaler.step(self.optimizer)  # skips where a gradient is not finite
            self.scaler.update()
        elif self.skipper is not None:
            self.skipper.step(self.optimizer, norm)
        elif bool(norm.isfinite()):
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def _loss_scale(self, step: int) -> float:
        """The loss scale of fp16; NaN where there is none, or where to read it would wait."""
        if self.scaler is None or (self._late and step % self.settings.run.log_every):
            return math.nan
        return self.scaler.get_scale()

    def _generator(self, step: int, micro: int) -> torch.Generator:
        """The noise of a micro-batch: the same whenever it is drawn."""
        place = (self.settings.run.seed, step, micro, self.process.rank)
        mixed = 0
        for part in place:  # SplitMix64's increment keeps near places apart
            mixed = (mixed * 0x9E3779B97F4A7C15 + part + 1) & (2**63 - 1)
        return torch.Generator(self.process.device).manual_seed(mixed)

    def _to_device(self, batch: Batch) -> Batch:
        device = self.process.device
        return batch._replace(
            tokens=batch.tokens.to(device, non_blocking=True),
            lengths=batch.lengths.to(device, non_blocking=True),
            latents=batch.latents.to(device, non_blocking=True),
            modes=batch.modes.to(device, non_blocking=True),
        )

    def _push(self, vector: Tensor, facts: dict[str, float]) -> None:
        """Start the way of a vector to the host."""
        arrived = None
        if self._late:
            on_host = torch.empty(vector.shape, dtype=vector.dtype, pin_memory=True)
            vector = on_host.copy_(vector, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
        self._waiting.append((vector, arrived, facts))

    def results(self, keep: int = 0) -> list[Result]:
        """Results in order, but for the newest `keep`."""
        found = []
        while len(self._waiting) > keep:
            vector, arrived, facts = self._waiting.popleft()
            if arrived is not None:
                arrived.synchronize()
            result = _result(vector.tolist(), facts, self.process.world)
            self.balance.observe(result)
            found.append(result)
        return found

    def state(self) -> dict[str, object]:
        """For a checkpoint: what weighs the next losses."""
        scale = {} if self.scaler is None else self.scaler.state_dict()
        return {"balance": self.balance.means, "scale": scale}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.balance.means = state["balance"]
        if self.scaler is not None and state["scale"]:
            self.scaler.load_state_dict(state["scale"])


def _result(values: list[float], facts: dict[str, float], world: int) -> Result:
    text, latent, grad_norm, stop = values[: len(HEAD)]
    own_text, own_latent = text / facts["tokens"], latent / facts["latents"]
    return Result(
        step=int(facts["step"]),
        own_loss=own_text + facts["latent_weight"] * own_latent,
        own_text=own_text,
        own_latent=own_latent,
        grad_norm=grad_norm,
        stop=stop > 0,
        sums=dict(zip(SUMS, values[len(HEAD) :], strict=True)),
        tokens_asked=facts["tokens"] * world,
        latents_asked=facts["latents"] * world,
        lr=facts["lr"],
        latent_weight=facts["latent_weight"],
        loss_scale=facts["loss_scale"],
        seconds=facts["all"],
        own_seconds=facts["own"],
        data_seconds=facts["data"],
    )
