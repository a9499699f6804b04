"""Every setting, checked before anything starts. What no code reads does not stand here."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ldlm_trainer.errors import TrainerError

Mode = Literal["unconditional", "l2t", "t2l"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Data(_Section):
    """Where samples come from, and how they are read."""

    folder: Path = Path("data")
    format: Literal["shards", "files"] = "shards"
    """`files`: upstream's layout, two files a sample."""
    batch_size: Annotated[int, Field(ge=1)] = 4
    """Samples of one forward pass on one rank."""
    workers: Annotated[int, Field(ge=0)] = 0
    """Loader processes of each rank; 0 reads in the training process."""
    prefetch_factor: Annotated[int, Field(ge=1)] = 2
    """Micro-batches that each worker keeps ready."""
    persistent_workers: bool = True
    pin_memory: bool = True


class Model(_Section):
    """The transformer. Vocabulary, length and latents are the data's."""

    width: Annotated[int, Field(ge=8)] = 64
    depth: Annotated[int, Field(ge=1)] = 2
    heads: Annotated[int, Field(ge=1)] = 4
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    qk_norm: bool = True
    attention: Literal["sdpa", "explicit"] = "sdpa"
    """`explicit` materialises the scores, as upstream does."""
    backend: Literal["own", "mmdit"] = "own"
    checkpoint_every: Annotated[int, Field(ge=0)] = 0
    """Recompute the activations of every n-th block in the backward pass; 0: keep all."""
    compile: bool = False

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> Self:
        if self.width % self.heads or self.width // self.heads % 2:
            raise ValueError(f"width {self.width} is not an even multiple of {self.heads} heads")
        return self


class Objective(_Section):
    """What is learned."""

    mode: Literal["unconditional", "l2t", "t2l", "mixed", "sequential"] = "l2t"
    """`mixed` draws one of the three modes for each sample, `sequential` takes turns."""
    phase_steps: Annotated[int, Field(ge=1)] = 1000
    """Steps of one turn in mode `sequential`."""
    latent_loss: Literal["mse", "cosine", "normalized_mse"] = "mse"
    latent_weight: Annotated[float, Field(ge=0.0)] = 1.0
    weighting: Literal["fixed", "balanced"] = "fixed"
    """`balanced`: `latent_weight` times how much greater the text loss has been lately."""
    upstream_compat: bool = False
    """Upstream's objective, which fixes the diffusion time at 1 in l2t and t2l."""
    freeze: bool = True
    """Freeze what a mode does not train, once, when it begins."""


class Ddp(_Section):
    """How ranks work together: options of DistributedDataParallel, or FSDP2 instead."""

    shard: bool = False
    """FSDP2: each rank keeps its part of weights, gradients and optimizer state."""
    find_unused_parameters: bool = False
    static_graph: bool = False
    gradient_as_bucket_view: bool = True
    sync_buffers: bool = False
    no_sync: bool = True
    """Reduce gradients with the last micro-batch of a step only."""
    compression: Literal["none", "fp16", "bf16", "powersgd"] = "none"
    """How gradients travel between ranks: as they are, in half precision, or as two factors."""
    powersgd_rank: Annotated[int, Field(ge=1)] = 2


class Optim(_Section):
    """AdamW, clipping and precision."""

    lr: Annotated[float, Field(gt=0.0)] = 1e-3
    beta1: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    beta2: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.99
    eps: Annotated[float, Field(gt=0.0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.01
    clip_norm: Annotated[float, Field(ge=0.0)] = 0.5
    """0: no clipping."""
    fused: bool = True
    precision: Literal["fp32", "bf16", "fp16", "pure_bf16"] = "fp32"
    """`bf16`, `fp16`: autocast over float32 weights, `fp16` with a dynamic loss scale;
    `pure_bf16`: upstream's, without float32 weights."""


class Schedule(_Section):
    """Learning rate and batch size over the steps."""

    steps: Annotated[int, Field(ge=1)] = 1000
    warmup: Annotated[int, Field(ge=0)] = 50
    floor: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    """Lowest learning rate, as a part of the peak."""
    restart_every: Annotated[int, Field(ge=0)] = 0
    """Steps of a cosine cycle, its warm-up included; 0: one cycle over all steps."""
    restart_decay: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """The peak of a cycle, as a part of the one before."""
    plateau_patience: Annotated[int, Field(ge=0)] = 0
    """Steps without a better evaluation after which the rate is reduced; 0: never."""
    plateau_factor: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    plateau_threshold: Annotated[float, Field(ge=0.0)] = 0.01
    """By which part of its size an evaluation must be lower than the best one to be better."""
    plateau_min_lr: Annotated[float, Field(ge=0.0)] = 1e-6
    """No reduction goes below this rate; one that the schedule sets lower stays as it is."""
    effective_batch: Annotated[int, Field(ge=0)] = 0
    """Samples of an optimizer step over all ranks; 0: one micro-batch a rank."""
    batch_growth: tuple[tuple[int, int], ...] = ()
    """(step, effective batch from there on), in rising order."""
    micro_growth: tuple[tuple[int, int], ...] = ()
    """(step, `data.batch_size` from there on), in rising order."""


class Run(_Section):
    """One launch: its name, its files, its clockwork."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = "l2t"
    save_dir: Path = Path("saved")
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    eval_every: Annotated[int, Field(ge=0)] = 250
    eval_batches: Annotated[int, Field(ge=1)] = 20
    log_every: Annotated[int, Field(ge=1)] = 10
    """Steps between two lines of the log; `training_log.jsonl` has every step."""
    save_every: Annotated[int, Field(ge=0)] = 500
    keep: Annotated[int, Field(ge=1)] = 3
    """Checkpoints that stay, beside milestones and the best one."""
    async_save: bool = False
    """Write checkpoints beside the training, from a copy in memory."""
    milestone_every: Annotated[int, Field(ge=0)] = 0
    """Checkpoints at multiples of this stay for ever; 0: none."""
    resume: Literal["auto", "never"] | Path = "auto"
    init_timeout: Annotated[float, Field(gt=0.0)] = 600.0
    step_timeout: Annotated[float, Field(gt=0.0)] = 300.0
    """Seconds that a collective may take, in the first step and afterwards."""
    max_skips: Annotated[int, Field(ge=1)] = 20
    """Steps skipped in a row after which the run gives up."""
    dialect: Literal["plain", "upstream"] = "plain"
    """`upstream` writes the log as MM-LDLM does: bars, no time, bare NaN."""
    health: bool = True
    """Write health_rank{r}.jsonl with the monitor's callback."""
    faults: str = ""


class Stage(NamedTuple):
    """From step `first` on a rank takes `times` micro-batches of `size` samples a step."""

    first: int
    size: int
    times: int


class Config(_Section):
    """All sections."""

    data: Data = Data()
    model: Model = Model()
    objective: Objective = Objective()
    ddp: Ddp = Ddp()
    optim: Optim = Optim()
    schedule: Schedule = Schedule()
    run: Run = Run()

    @property
    def folder(self) -> Path:
        """Where the run keeps its files."""
        return self.run.save_dir / self.run.name

    def stages(self, world: int) -> tuple[Stage, ...]:
        """The stages of the batch; raises `TrainerError`.

        An effective batch that is no multiple of what one pass over all ranks takes
        would silently become another one, so it is refused.
        """
        effective, micro = dict(self.schedule.batch_growth), dict(self.schedule.micro_growth)
        size, wanted, found = self.data.batch_size, self.schedule.effective_batch, []
        for step in sorted({0, *effective, *micro}):
            size, wanted = micro.get(step, size), effective.get(step, wanted)
            one_pass = size * world
            samples = wanted or one_pass
            if samples % one_pass or samples < one_pass:
                raise TrainerError(
                    f"effective batch {samples} (from step {step}) is no multiple of {one_pass}, "
                    f"the {size} samples of each of {world} ranks",
                    where="schedule.effective_batch",
                    remedy=f"take {max(one_pass, samples // one_pass * one_pass)}, "
                    "or change data.batch_size",
                )
            found.append(Stage(step, size, samples // one_pass))
        return tuple(found)

    @model_validator(mode="after")
    def _parts_fit_each_other(self) -> Self:
        schedule, ddp, mode = self.schedule, self.ddp, self.objective.mode
        if schedule.warmup >= schedule.steps:
            raise ValueError(f"warmup {schedule.warmup} leaves no step of {schedule.steps}")
        if 0 < schedule.restart_every <= schedule.warmup:
            raise ValueError("restart_every must be longer than warmup, which every cycle has")
        for name in ("batch_growth", "micro_growth"):
            steps = [step for step, _ in getattr(schedule, name)]
            if steps != sorted(set(steps)) or (steps and steps[0] < 1):
                raise ValueError(f"the steps of {name} must rise, from 1 on")
            if any(size < 1 for _, size in getattr(schedule, name)):
                raise ValueError(f"a batch of {name} must have a sample")
        if mode in ("l2t", "t2l", "sequential") and not (
            self.objective.freeze or ddp.find_unused_parameters
        ):
            raise ValueError(
                f"mode {mode} leaves parameters without gradient: DDP would stop in step 1. "
                "Set objective.freeze, or ddp.find_unused_parameters"
            )
        if ddp.static_graph and mode == "sequential":
            raise ValueError("ddp.static_graph: the graph of mode sequential changes")
        if ddp.static_graph and ddp.no_sync:
            raise ValueError(
                "ddp.static_graph with ddp.no_sync: a first step that is not reduced breaks it"
            )
        if ddp.compression == "powersgd" and (ddp.static_graph or ddp.find_unused_parameters):
            raise ValueError(
                "ddp.compression powersgd needs the same buckets in each step: no "
                "static_graph, no find_unused_parameters"
            )
        if ddp.shard and (self.optim.precision == "fp16" or ddp.compression != "none"):
            raise ValueError(
                "ddp.shard goes neither with optim.precision fp16 nor with compression"
            )
        if self.optim.precision == "pure_bf16" and self.model.backend == "mmdit":
            raise ValueError("optim.precision pure_bf16 is for model.backend own")
        return self


def load(path: Path | None, overrides: Sequence[str]) -> Config:
    """The settings of a TOML file, and `section.key=value` over them; raises `TrainerError`.

    A value is read as TOML where it is TOML (numbers, true, lists), else as text.
    """
    where = "command line"
    tree: dict[str, object] = {}
    if path is not None:
        where = str(path)
        try:
            tree = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise TrainerError(error.strerror or str(error), where=where) from error
        except ValueError as error:
            raise TrainerError(str(error), where=where, remedy="see docs/trainer.md") from error
    for override in overrides:
        _set(tree, override)
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise TrainerError(
            first["msg"].removeprefix("Value error, "),
            where=f"{where}: {key}" if key else where,
            remedy="see docs/trainer.md",
        ) from error


def _set(tree: dict[str, object], override: str) -> None:
    key, equals, text = override.partition("=")
    section, dot, name = key.partition(".")
    if not (equals and dot and section and name):
        raise TrainerError(f"{override!r} is no setting", remedy="write section.key=value")
    inner = tree.setdefault(section, {})
    if not isinstance(inner, dict):
        raise TrainerError(f"{section!r} is no section", where=override)
    inner[name] = _value(text)


def _value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text
