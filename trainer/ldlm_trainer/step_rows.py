"""The values of a step, as `training_log.jsonl` and the health file name them."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from ldlm_trainer.data import Plan
    from ldlm_trainer.rank_process import Process
    from ldlm_trainer.step import Result

Values = dict[str, float | int | str]


def row(result: Result, plan: Plan, process: Process, *, skipped: int) -> Values:
    """Upstream's keys, the seeds' further metrics, and what a monitor asks for.

    Losses are those of rank 0, which writes the rows, as upstream's are; accuracy, norms
    and rates are of all ranks. `skipped` counts the steps of the run that were not taken;
    `batch_size` is the effective one. A run on GPUs has memory, too.
    """
    sums = result.sums
    epoch, place = plan.place(result.step)
    samples = plan.effective(result.step)
    with_latent = max(sums["latents"], 1.0)
    values: Values = {
        "epoch": epoch,
        "step": result.step,
        "batch_in_epoch": place,
        "loss": result.own_loss,
        "lr": result.lr,
        "text_loss": result.own_text,
        "latent_loss": result.own_latent,
        "text_accuracy": sums["hits"] / max(sums["hidden"], 1.0),
        "latent_norm": sums["latent_norm"] / samples,
        "latent_pred_norm": sums["pred_norm"] / samples,
        "latent_cosine": sums["cosine"] / with_latent,
        "time": time.time(),
        "attempt": process.attempt,
        "mode": plan.mode(result.step),
        "grad_norm": result.grad_norm,
        "skipped": skipped,
        "batch_size": samples,
        "accum": plan.stage(result.step).times,
        "step_seconds": result.seconds,
        "data_seconds": result.data_seconds,
        "samples_per_sec": samples / result.seconds,
        "tokens_per_sec": result.tokens_asked / result.seconds,
        "samples_total": plan.seen(result.step + 1),
    }
    if plan.settings.objective.weighting != "fixed":
        values["latent_weight"] = result.latent_weight
    if math.isfinite(result.loss_scale):
        values["loss_scale"] = result.loss_scale
    if process.device.type == "cuda":
        values["memory_allocated_bytes"] = torch.cuda.memory_allocated()
        values["memory_reserved_bytes"] = torch.cuda.memory_reserved()
    return values


def health_values(result: Result, plan: Plan, process: Process) -> Values:
    """What this rank alone has: its own losses, and how long it worked itself.

    `busy_seconds` is the time before it waits for other ranks. In a step that counts the
    waiting all ranks are as slow as the slowest, and it cannot be seen which that is. The
    gradient norm is of all ranks and stands in `training_log.jsonl`.
    """
    return {
        "loss": result.own_loss,
        "text_loss": result.own_text,
        "latent_loss": result.own_latent,
        "lr": result.lr,
        "busy_seconds": result.own_seconds,
        "data_seconds": result.data_seconds,
        "samples": plan.effective(result.step) // process.world,
    }
