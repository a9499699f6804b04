"""The run: what is set up, the loop, and how it ends."""

from __future__ import annotations

import math
import random
import signal
import time
from collections.abc import Iterator
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Self

import torch
from torch import nn

from ldlm_trainer import checkpoint, faults, optim
from ldlm_trainer.batch import Batch
from ldlm_trainer.data import MicroBatches, Plan, StepOrder, loader
from ldlm_trainer.errors import TrainerError
from ldlm_trainer.health_file import open_health
from ldlm_trainer.held_out import evaluate
from ldlm_trainer.log import Log
from ldlm_trainer.network import MultimodalDiT
from ldlm_trainer.rank_process import (
    Process,
    expect_prompt_steps,
    freeze_unused,
    in_parallel,
    sharded,
    stopped_by,
)
from ldlm_trainer.shards import open_split
from ldlm_trainer.step import Result, Stepper
from ldlm_trainer.step_rows import health_values, row

if TYPE_CHECKING:
    from ldlm_trainer.config import Config


class GaveUpError(RuntimeError):
    """The gradient stayed non-finite for too many steps in a row."""


class Trainer:
    """One run on one rank; `train` is its loop."""

    def __init__(self, settings: Config, process: Process) -> None:
        self.settings, self.process = settings, process
        run = settings.run
        self.faults = faults.Faults(
            faults.parse(run.faults), rank=process.rank, attempt=process.attempt
        )
        self.train_split = open_split(settings.data.folder, settings.data.format, "train")
        self.held_out = open_split(settings.data.folder, settings.data.format, "validation")
        shape = self.train_split.shape
        self.plan = Plan(settings, self.train_split.lengths, shape.length, process.world)
        torch.manual_seed(run.seed)
        random.seed(run.seed + process.rank)
        kind = torch.bfloat16 if settings.optim.precision == "pure_bf16" else torch.float32
        self.model = MultimodalDiT(settings.model, shape).to(process.device, kind)
        sharded(self.model, settings.ddp, process)
        torch.manual_seed(run.seed + 1 + process.rank)  # dropout differs between ranks
        self.optimizer, not_fused = optim.adamw(self.model, settings.optim)
        self.plateau = optim.Plateau(settings.schedule)
        self.keeper = checkpoint.Keeper(
            settings.folder, keep=run.keep, milestone_every=run.milestone_every,
            opened=self.faults.opened,
        )  # fmt: skip
        self.writer = checkpoint.Writer(self.keeper)
        self.step = self.skipped = self.skipped_in_a_row = 0
        self.best = math.inf
        self._evaluation_due = False
        self.stepper = Stepper(settings, process, self.optimizer, self.faults)
        resumed = self._resume()
        self.log = Log(settings, process.rank, resumed=resumed)
        self.health = open_health(settings, process)
        self._frozen: dict[str, list[str]] = {}
        self.log.lines(f"* World size: {process.world}\n* Device: {process.device}")
        if not_fused:
            self.log.lines(f"AdamW is not fused here: {not_fused}")
        if resumed:
            self.log.lines(f"Resumed from checkpoint at step {self.step}")

    def train(self) -> None:
        """All steps that are left. Raises `GaveUpError`."""
        with stopped_by(signal.SIGTERM, signal.SIGUSR1) as stop:
            self._loop(stop)

    def _loop(self, asked: Event) -> None:
        run, schedule = self.settings.run, self.settings.schedule
        began, batches = time.monotonic(), self._batches()
        mode, model, first = "", nn.Module(), self.step
        if self._evaluation_due:
            self._evaluate()
        while self.step < schedule.steps:
            step = self.step
            if (now := self.plan.mode(step)) != mode:
                mode, model = now, self._for_mode(now)
            rate = optim.learning_rate(step, self.settings.optim.lr, schedule)
            for group in self.optimizer.param_groups:
                group["lr"] = self.plateau.applied(rate)
            if optim.is_restart(step, schedule):
                self.log.lines(f"Learning rate restarts at step {step}")
            results = self.stepper.take(
                step, model, batches, self.plan.stage(step).times,
                mask_id=self.train_split.mask_id, stop=asked.is_set(),
            )  # fmt: skip
            self.step += 1
            if self.step == first + 1:
                expect_prompt_steps(run, self.process)
            is_evaluation = run.eval_every and self.step % run.eval_every == 0
            is_save = run.save_every and self.step % run.save_every == 0
            is_last = self.step == schedule.steps
            if is_evaluation or is_save or is_last:
                results += self.stepper.results()
            stop = self._report(results)
            if is_evaluation and not stop:
                self._evaluate()
            if is_save or is_last or stop:
                self._save(evaluation_due=bool(is_evaluation and stop))
            if stop:
                self._finish_save()
                self._report(self.stepper.results())
                self.log.lines(f"Training stopped by a signal after step {step}")
                return
        self._finish_save()
        hours = (time.monotonic() - began) / 3600
        self.log.lines(f"Training complete! Time: {hours:.2f}h")

    def _batches(self) -> Iterator[Batch]:
        order = StepOrder(self.plan, self.step, self.settings.schedule.steps)
        reader = MicroBatches(
            self.train_split, self.plan, self.process.rank, self.faults.before_read
        )
        is_cuda = self.process.device.type == "cuda"
        return iter(loader(reader, order, self.settings.data, pin=is_cuda))

    def _for_mode(self, mode: str) -> nn.Module:
        """The model with what `mode` does not train frozen, wrapped for all ranks.

        Once for each mode and not in every forward pass: DDP must know when it wraps.
        """
        if self.settings.objective.freeze and not self.settings.ddp.shard:
            self.model.requires_grad_(True)
            if mode not in self._frozen:
                self._frozen[mode] = self._unused()
            for name in self._frozen[mode]:
                self.model.get_parameter(name).requires_grad_(False)
        trained = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        self.log.lines(f"* Trainable parameters: {trained / 1e6:.2f}M")
        return in_parallel(self.model, self.settings.ddp, self.process)

    def _unused(self) -> list[str]:
        reader = MicroBatches(self.train_split, self.plan, self.process.rank)
        device = self.process.device
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices):  # a resumed run probes too, and must be the same
            probe = self.stepper.probe(self.model, reader[self.step, 0], self.train_split.mask_id)
        return freeze_unused(self.model, probe, self.process)

    def _report(self, results: list[Result]) -> bool:
        """Log results; True where some rank was asked to stop. Raises `GaveUpError`."""
        for result in results:
            self.skipped += not result.is_finite
            self.skipped_in_a_row = 0 if result.is_finite else self.skipped_in_a_row + 1
            self.log.row(row(result, self.plan, self.process, skipped=self.skipped))
            self.health.on_step(result.step, **health_values(result, self.plan, self.process))
            self._report_nonfinite(result)
            if self.skipped_in_a_row >= self.settings.run.max_skips:
                raise GaveUpError(
                    f"the gradient was not finite in {self.skipped_in_a_row} steps in a row, "
                    f"the last one {result.step}"
                )
        return any(result.stop for result in results)

    def _report_nonfinite(self, result: Result) -> None:
        """A loss is one rank's, the gradient norm is that of all."""
        rate, remedy = {"Learning rate": f"{result.lr:.2e}"}, "Skipping this batch on all ranks"
        if not math.isfinite(result.own_loss):
            facts = {"Total loss": f"{result.own_loss}", **rate}
            title = f"Invalid loss detected at step {result.step}"
            self.log.problem(title, facts, remedy, own=True)
        elif not result.is_finite:
            facts = {"Gradient norm": f"{result.grad_norm}", **rate}
            title = f"Invalid gradient norm at step {result.step}"
            self.log.problem(title, facts, remedy, own=False)

    def _evaluate(self) -> None:
        self.log.evaluation(0, self.settings.run.eval_batches)
        with self.health.phase("eval"):
            losses = evaluate(self.model, self.held_out, self.settings, self.process)
        self.log.evaluation(1, 1)
        improved = losses["eval_loss"] < self.best
        self.best = min(self.best, losses["eval_loss"])
        if improved:
            self.keeper.best = self.step
        lowered = self.plateau.observe(losses["eval_loss"], self.step)
        shown = " ".join(f"{name}: {value:.4g}" for name, value in losses.items())
        self.log.lines(f"step: {self.step}/{self.settings.schedule.steps} {shown}")
        if lowered:
            self.log.lines(f"Plateau: learning rate times {self.plateau.factor:g} from now on")

    def _save(self, *, evaluation_due: bool) -> None:
        """Write a checkpoint on rank 0. A full disk does not end the training; it is logged.

        `evaluation_due`: there was no time for the evaluation that belongs to this step,
        so a resumed run begins with it.
        """
        states = self.process.from_all(checkpoint.random_state())
        learned = checkpoint.learned_state(self.model, self.optimizer)
        if self.process.rank != 0:
            return
        state = {**learned, "rng": dict(enumerate(states))}
        meta = {
            "config": self.settings.model_dump(mode="json"),
            "world": self.process.world,
            "torch": torch.__version__,
            "skipped": self.skipped,
            "plateau": self.plateau.state(),
            "stepper": self.stepper.state(),
            "best": self.best if math.isfinite(self.best) else None,
            "best_step": self.keeper.best,
            "evaluation_due": evaluation_due,
            "time": time.time(),
        }
        with self.health.phase("checkpoint"):
            self._finish_save()
            self.writer.start(self.step, state, meta, beside=self.settings.run.async_save)
            if not self.settings.run.async_save:
                self._finish_save()

    def _finish_save(self) -> None:
        """Wait for the checkpoint that is being written, and log what became of it."""
        try:
            path = self.writer.finish()
        except OSError as error:
            self.log.lines(f"ERROR: no checkpoint: {error}")
            self.health.event("checkpoint_failed", str(error), "error")
        else:
            if path is not None:
                self.log.lines(f"Saved checkpoint to {path}")

    def _resume(self) -> bool:
        wanted = self.settings.run.resume
        if wanted == "never":
            return False
        if wanted == "auto":
            found = self.keeper.newest_good()
            steps = self.process.from_all(found.step if found else 0)
            if len(set(steps)) > 1:
                raise TrainerError(
                    f"ranks see different checkpoints, of steps {steps}",
                    where=str(self.settings.folder),
                    remedy="put run.save_dir on storage that all nodes share",
                )
        else:
            found = checkpoint.open_checkpoint(wanted)
        if found is None:
            return False
        self._restore(found)
        return True

    def _restore(self, found: checkpoint.Checkpoint) -> None:
        held = found.load(self.process.device)
        try:
            checkpoint.restore_learned(self.model, self.optimizer, held)
        except (RuntimeError, ValueError, KeyError) as error:
            raise TrainerError(
                str(error).partition("\n")[0],
                where=str(found.path),
                remedy="resume with the model settings that it was written with",
            ) from error
        states = held["rng"]
        if self.process.rank in states:
            checkpoint.restore_random(states[self.process.rank])
        meta = found.meta
        self.step, self.skipped = found.step, int(meta["skipped"])
        self.plateau.restore(meta["plateau"])
        self.stepper.restore(meta["stepper"])
        self.best = math.inf if meta["best"] is None else float(meta["best"])
        self.keeper.best, self.keeper.source = meta["best_step"], found.path
        self._evaluation_due = bool(meta["evaluation_due"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Log how it ended."""
        self._finish_save()
        self.writer.close()
        self.health.close(error)
        self.log.close()
