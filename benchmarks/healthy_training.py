"""Logs of trainings in which nothing is wrong, as real ones look; and the same with one fault.

What varies, and where it is seen:

- The loss falls by a power law of the steps (Kaplan et al. 2020). Its noise is mostly normal,
  and wider for one step in fifty (Tukey's contaminated normal): batches differ. It rises by a
  few per cent when a cosine schedule starts over, and falls a little where an epoch ends and
  data are seen again. Losses of regressions are small; in bf16, with its eight bits, many
  neighbours are equal.
- Gradient norms are log-normal, several times higher during warm-up, and now and then one is
  three to eight times the usual: clipping exists because of them.
- Steps take a little more or less; one in five hundred waits for data. Evaluations take two
  minutes, checkpoints some seconds. A resume goes back to the last checkpoint.
- With fp16 the loss scale is found by halving, one skipped step each, and then tried anew
  every 2,000 steps (torch.amp.GradScaler: growth_interval), which skips one more.
- Many log only every tenth step; some have a file for each rank.

Everything is drawn from `seed`.
"""

import math
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

START = 1_769_681_700.0
STAMP = "20260129_101500"
EVALUATION_SECONDS = 120.0
GROWTH_INTERVAL = 2_000
"""Steps without an overflow after which a loss scale doubles (torch.amp.GradScaler)."""
EVAL_BATCHES = 20

Layout: TypeAlias = Literal["mmldlm", "rows", "ranks"]
"""Bars and `training_log.jsonl`; one file of rows with times; such a file for each rank."""


@dataclass(frozen=True, slots=True)
class Training:
    """How one training goes. `loss` is where it ends, `loss + drop` where it begins.

    Times are seconds, the others steps; `resume_at` 0: it never goes back.
    """

    name: str
    layout: Layout
    steps: int
    seed: int
    loss: float = 2.0
    drop: float = 8.0
    power: float = 0.4
    noise: float = 0.03
    warmup: int = 500
    restart_every: int = 0
    epoch: int = 20_000
    step_seconds: float = 0.8
    grad_norm: float = 0.8
    eval_every: int = 2_500
    checkpoint_every: int = 1_000
    checkpoint_seconds: float = 8.0
    resume_at: int = 0
    log_every: int = 1
    bf16: bool = False
    fp16: bool = False
    ranks: int = 1


@dataclass(slots=True)
class Step:
    """One step of the optimizer, finished at `at` (Unix seconds)."""

    number: int
    at: float
    loss: float
    grad_norm: float
    rate: float
    seconds: float
    memory: float
    scale: float | None = None
    skipped: bool = False
    saves: bool = False
    evaluates: bool = False
    slow_rank: float = 1.0
    """How much longer than the others the last rank takes."""


Fault: TypeAlias = Callable[[Step, int], None]
"""Changes a step; it is so many steps since the fault began (from 0)."""


@dataclass(slots=True)
class Written:
    """Logs in a folder, and when each step of them was finished."""

    folder: Path
    training: Training
    times: list[float] = field(default_factory=list)


SCENARIOS: tuple[Training, ...] = (
    Training("language model, bars", "mmldlm", 0, 0),
    Training("language model, rows", "rows", 0, 0, step_seconds=1.5, resume_at=1),
    Training("bf16 losses", "rows", 0, 0, bf16=True, noise=0.01, step_seconds=0.4),
    Training("fp16 with a loss scale", "rows", 0, 0, fp16=True, warmup=200),
    Training("every tenth step is logged", "rows", 0, 0, log_every=10, step_seconds=0.3),
    Training(
        "small losses of a regression", "rows", 0, 0, loss=2e-4, drop=0.3, noise=0.12, power=0.6
    ),
    Training("warm restarts", "mmldlm", 0, 0, restart_every=5_000, resume_at=1, step_seconds=0.5),
    Training("noisy small batches", "rows", 0, 0, noise=0.15, grad_norm=2.0, step_seconds=0.15),
    Training("four ranks, a file each", "ranks", 0, 0, ranks=4, step_seconds=1.2),
    Training("slow steps of a large model", "rows", 0, 0, step_seconds=12.0, checkpoint_seconds=60),
    Training("epochs of 300 steps", "rows", 0, 0, epoch=300, loss=0.4, drop=3.0, noise=0.05),
    Training("bars, fp16 that logs its overflows", "mmldlm", 0, 0, fp16=True, warmup=200),
    Training("bars, bf16", "mmldlm", 0, 0, bf16=True, step_seconds=0.12, eval_every=5_000),
)


def trainings(steps: int, seed: int = 1, each: int = 25_000) -> Iterator[Training]:
    """Trainings of `each` steps, `steps` in all: the scenarios in turn, each drawn anew."""
    draw = random.Random(seed)
    number = 0
    while steps > 0:
        scenario = SCENARIOS[number % len(SCENARIOS)]
        number += 1
        length = min(each, steps)
        steps -= length
        yield replace(
            scenario,
            steps=length,
            seed=draw.randrange(2**32),
            power=scenario.power * draw.uniform(0.7, 1.3),
            noise=scenario.noise * draw.uniform(0.6, 1.5),
            step_seconds=scenario.step_seconds * draw.uniform(0.5, 2.0),
            grad_norm=scenario.grad_norm * draw.uniform(0.5, 2.0),
            resume_at=draw.randrange(length // 2, length) if scenario.resume_at else 0,
        )


def steps_of(training: Training, fault: Fault | None = None, begins: int = 0) -> Iterator[Step]:
    """What happens, step by step; from step `begins` on with the fault."""
    draw = random.Random(training.seed)
    gauss, uniform, chance = draw.gauss, draw.uniform, draw.random
    at, number, saved = START, 0, 0
    resumes = bool(training.resume_at)
    scale, good = (65_536.0 * 16 if training.fp16 else None), 0
    memory = 4e10 * uniform(0.5, 1.5)
    while number < training.steps:
        seconds = training.step_seconds * math.exp(gauss(0.0, 0.04))
        if chance() < 0.002:
            seconds *= uniform(2.0, 6.0)  # the data loader fell behind
        warm = math.exp(-number / training.warmup)
        norm = training.grad_norm * (1.0 + 5.0 * warm) * math.exp(gauss(0.0, 0.3))
        if chance() < 0.0004:
            norm *= uniform(3.0, 8.0)
        step = Step(
            number,
            at,
            _loss(training, number, gauss(0.0, 1.0), chance()),
            norm,
            _rate(training, number),
            seconds,
            memory * (1.0 + 0.002 * chance()),
        )
        if scale is not None:
            step.scale = scale
            # The largest scale that gradients of these norms allow lies near 2**16.
            step.skipped = scale * norm / training.grad_norm > 2**17 * math.exp(gauss(0.0, 0.2))
            good = 0 if step.skipped else good + 1
            scale = scale / 2 if step.skipped else scale * 2 if good == GROWTH_INTERVAL else scale
            good %= GROWTH_INTERVAL
        step.saves = number > 0 and number % training.checkpoint_every == 0
        step.evaluates = number > 0 and number % training.eval_every == 0
        if fault is not None and number >= begins:
            fault(step, number - begins)
        at += step.seconds
        step.at = at
        yield step
        at += training.checkpoint_seconds * uniform(0.8, 1.3) if step.saves else 0.0
        at += EVALUATION_SECONDS * uniform(0.9, 1.1) if step.evaluates else 0.0
        saved = number if step.saves else saved
        number += 1
        if resumes and number == training.resume_at:
            resumes, number = False, saved + 1
            at += 20.0


def _loss(training: Training, step: int, normal: float, chance: float) -> float:
    smooth = training.loss + training.drop * (1.0 + step / training.warmup) ** -training.power
    if training.restart_every and step >= training.restart_every:
        smooth *= 1.0 + 0.05 * math.exp(-(step % training.restart_every) / 200)
    smooth *= 0.99 ** min(step // training.epoch, 30)
    wide = 3.0 if chance < 0.02 else 1.0
    loss = smooth * math.exp(training.noise * wide * normal)
    return _in_bf16(loss) if training.bf16 else loss


def _in_bf16(value: float) -> float:
    """Rounded to the eight significant bits of a bfloat16."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(mantissa * 256) / 256, exponent)


def _rate(training: Training, step: int) -> float:
    """Linear warm-up, then a cosine down to a tenth; it may start over."""
    if step < training.warmup:
        return 5e-4 * (step + 1) / training.warmup
    period = training.restart_every or training.steps
    return 5e-5 + 2.25e-4 * (1.0 + math.cos(math.pi * (step % period) / period))


def write(training: Training, folder: Path, fault: Fault | None = None, begins: int = 0) -> Written:
    """Write the logs of a training; each file was last written when its last line came."""
    folder.mkdir(parents=True)
    written = Written(folder, training)
    _WRITERS[training.layout](written, steps_of(training, fault, begins))
    for path in folder.iterdir():
        os.utime(path, (written.times[-1], written.times[-1]))
    return written


def _write_mmldlm(written: Written, steps: Iterator[Step]) -> None:
    """As MM-LDLM's trainer and tqdm write: a bar is repainted, a row is appended, every step."""
    training = written.training
    total, begun = training.steps, START
    with (
        (written.folder / f"train_{STAMP}_node0.log").open("w", newline="") as log,
        (written.folder / "training_log.jsonl").open("w") as rows,
    ):
        log.write("* World size: 8\n*** Starting MMDiT with Joint Text-Latent Diffusion ***\n")
        previous = -1
        for step in steps:
            if step.number <= previous:  # the launch script started the trainer again
                begun = step.at - step.seconds
                log.write("\n*** Starting MMDiT with Joint Text-Latent Diffusion ***\n")
            previous = step.number
            epoch, batch = divmod(step.number, training.epoch)
            log.write(
                f"\rTraining:  {100 * step.number // total}%|▎| {step.number + 1}/{total} "
                f"[{_clock(step.at - begun)}<9:00:00, {1 / step.seconds:5.2f}it/s, "
                f"Epoch={epoch}/9, Progress={100 * batch / training.epoch:.1f}%, "
                f"Loss={step.loss:.4f}, Text={step.loss:.4f}]"
            )
            rows.write(
                f'{{"epoch": {epoch}, "step": {step.number}, "batch_in_epoch": {batch}, '
                f'"loss": {step.loss!r}, "lr": {step.rate!r}, "text_loss": {step.loss!r}, '
                f'"latent_loss": 0.0, "text_accuracy": {0.5 / (1 + step.loss)!r}}}\n'
            )
            written.times.append(step.at)
            if step.skipped and step.scale is not None:
                log.write(
                    "\n[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: "
                    f"{step.scale:g}, reducing to {step.scale / 2:g}\n"
                )
            if step.evaluates:
                log.write("\n")
                for batch in range(1, EVAL_BATCHES + 1):
                    seconds = int(batch * EVALUATION_SECONDS / EVAL_BATCHES)
                    log.write(
                        f"\rEval: {5 * batch:3d}%|██| {batch}/{EVAL_BATCHES} "
                        f"[{_clock(seconds)}<00:30,  6.00s/it]"
                    )
                log.write("\n")
            if step.saves:
                log.write(f"\n✓ Checkpoint saved: out/ckpt_{step.number}.pt\n")
        log.write("\nTraining complete! Time: 5.21h\n")


def _clock(seconds: float) -> str:
    """Elapsed time as tqdm prints it."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute:02d}:{second:02d}"


def _write_rows(written: Written, steps: Iterator[Step]) -> None:
    """One row every `log_every` steps, with the time; an evaluation has a row of its own."""
    training = written.training
    with (written.folder / "metrics.jsonl").open("w") as rows:
        rate, since = 0.0, 0
        for step in steps:
            written.times.append(step.at)
            rate, since = rate + step.seconds, since + 1
            if step.number % training.log_every == 0:
                # A step that is skipped has no norm that means anything.
                norm = "" if step.skipped else f', "grad_norm": {step.grad_norm!r}'
                scale = "" if step.scale is None else f', "loss_scale": {step.scale!r}'
                rows.write(
                    f'{{"step": {step.number}, "time": {step.at!r}, "loss": {_json(step.loss)}, '
                    f'"learning_rate": {step.rate!r}{norm}{scale}, '
                    f'"tokens_per_second": {5e5 * since / rate!r}, '
                    f'"memory_allocated_bytes": {step.memory!r}}}\n'
                )
                rate, since = 0.0, 0
            if step.evaluates:
                at = step.at + EVALUATION_SECONDS * 0.9
                rows.write(
                    f'{{"step": {step.number}, "time": {at!r}, "eval_loss": {step.loss!r}}}\n'
                )


def _json(value: float) -> str:
    """As Python's json writes it."""
    return "NaN" if math.isnan(value) else repr(value)


def _write_ranks(written: Written, steps: Iterator[Step]) -> None:
    """As the callback writes: a file for each rank; all wait for the slowest."""
    training = written.training
    draw = random.Random(training.seed + 1)
    files = [
        (written.folder / f"health_rank{rank}.jsonl").open("w") for rank in range(training.ranks)
    ]
    for rank, file in enumerate(files):
        file.write(
            f'{{"schema":"ldlm.health/1","type":"run","run":"{STAMP}","rank":{rank},'
            f'"world_size":{training.ranks},"time":{START!r}}}\n'
        )
    for step in steps:
        written.times.append(step.at)
        for rank, file in enumerate(files):
            own = step.seconds * (step.slow_rank if rank == training.ranks - 1 else 1.0)
            own *= draw.uniform(0.9, 1.0) / step.slow_rank
            loss = step.loss * math.exp(draw.gauss(0.0, training.noise))
            file.write(
                f'{{"type":"step","step":{step.number},"time":{step.at + 0.001 * rank!r},'
                f'"loss":{loss!r},"grad_norm":{step.grad_norm!r},"learning_rate":{step.rate!r},'
                f'"step_seconds":{own!r},"memory_allocated_bytes":{step.memory!r}}}\n'
            )
    for file in files:
        file.close()


_WRITERS: dict[Layout, Callable[[Written, Iterator[Step]], None]] = {
    "mmldlm": _write_mmldlm,
    "rows": _write_rows,
    "ranks": _write_ranks,
}
