"""What the optimizations proposed for MM-LDLM are worth: python benchmarks/trainer/improvements.py

Each alone and all together against a baseline that does as upstream does, at the same
effective batch, on the same data, with the same seed. `ldlm-monitor compare` judges speed and
loss by the rows that the callback wrote. A Markdown table; `--out` keeps what was measured as
JSON after every training, so that a run that is cut short has a result.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import judge
from ldlm_trainer.prepare import prepare
from ldlm_trainer.shards import Shards, export, read_index, write_shards

HERE = Path(__file__).parent
CELL = HERE / "cell.py"
SAME = 1e-4
"""Losses that differ by less, relatively, are the same: order of sums in float32."""
BASELINE = {
    "model.attention": "explicit",
    "model.checkpoint_every": "0",
    "optim.fused": "false",
    "data.format": "files",
    "data.workers": "0",
    "ddp.no_sync": "false",
    "ddp.find_unused_parameters": "true",
    "ddp.gradient_as_bucket_view": "false",
    "ddp.sync_buffers": "true",
    "objective.freeze": "false",
}
LOADER = {"data.format": "shards"}
DDP = {
    "objective.freeze": "true",
    "ddp.find_unused_parameters": "false",
    "ddp.gradient_as_bucket_view": "true",
    "ddp.sync_buffers": "false",
}
FAST = {**LOADER, **DDP, "model.attention": "sdpa", "optim.fused": "true", "ddp.no_sync": "true"}
ALL = {**FAST, "model.checkpoint_every": "1"}


@dataclass(frozen=True, slots=True)
class Cell:
    """A training: what it changes, on how many processes, and what was claimed of that."""

    name: str
    change: dict[str, str]
    claim: str = ""
    processes: int = 1
    against: str = "baseline"


@dataclass(frozen=True, slots=True)
class Profile:
    """How big, and how long."""

    cells: tuple[Cell, ...]
    settings: dict[str, str]
    length: int
    steps: int
    warm_up: int
    repeats: int
    deadline: float
    by_cpu: bool = False
    """Speed is judged by CPU time, which other work on the machine disturbs less."""


ONE = (
    Cell("baseline", {}),
    Cell("packed shards instead of files", LOADER, "+10-15 % speed"),
    Cell("SDPA instead of explicit attention", {"model.attention": "sdpa"}),
    Cell("fused AdamW", {"optim.fused": "true"}, "+20-30 % speed"),
    Cell("freezing once per mode", {"objective.freeze": "true"}, "+5-10 % speed"),
    Cell("checkpointing of every block", {"model.checkpoint_every": "1"}, "-30-40 % memory"),
    Cell("all but checkpointing", FAST),
    Cell("all", ALL, "+25-35 % speed, -30-40 % memory"),
    Cell("all, batch 8 instead of 4", {**ALL, "data.batch_size": "8"}, "+20 % speed, fits"),
)
TWO = (
    Cell("baseline on 2", {}, processes=2),
    Cell("DDP options on 2", DDP, "+15-25 % speed", 2, "baseline on 2"),
    Cell("no_sync on 2", {"ddp.no_sync": "true"}, "", 2, "baseline on 2"),
    Cell("all on 2", ALL, "1.8 x with 2", 2, "baseline on 2"),
)
ON_GPU = (
    Cell("bf16 weights, as upstream", {"optim.precision": "pure_bf16"}),
    Cell("bf16 autocast, float32 weights", {"optim.precision": "bf16"}),
    Cell("all, bf16 autocast", {**ALL, "optim.precision": "bf16"}),
    Cell("all, bf16 autocast, compiled",
         {**ALL, "optim.precision": "bf16", "model.compile": "true"}),
)  # fmt: skip
PROFILES = {
    "cpu": Profile(
        ONE + TWO,
        {"model.width": "96", "model.depth": "4", "schedule.effective_batch": "16",
         "run.device": "cpu"},
        length=64, steps=60, warm_up=5, repeats=2, deadline=275.0, by_cpu=True,
    ),
    "gpu": Profile(
        ONE + ON_GPU,
        {"model.width": "768", "model.depth": "12", "model.heads": "12",
         "schedule.effective_batch": "32"},
        length=512, steps=40, warm_up=10, repeats=2, deadline=450.0,
    ),
}  # fmt: skip


def make_data(folder: Path, length: int) -> None:
    """The same 2,000 samples packed and as upstream's files."""
    prepare(folder / "all", length=length)
    index = read_index(folder / "all")
    index["samples"] = {"train": 2000, "validation": 320}
    for split, count in index["samples"].items():
        samples = Shards(folder / "all", split)
        tokens, latents = samples.read(np.arange(count))
        lengths = samples.lengths[:count]
        size = int(index["vocabulary"])
        write_shards(folder / "shards", split, tokens, lengths, latents, vocabulary=size)
    (folder / "shards/index.json").write_text(json.dumps(index))
    export(folder / "shards", folder / "files")


def train(cell: Cell, profile: Profile, folder: Path) -> dict[str, Any]:
    """One training; raises `CalledProcessError` with what it said."""
    given = {**BASELINE, **profile.settings, **cell.change}
    given |= {"data.folder": str(folder / given["data.format"]), "run.save_dir": str(folder / "s")}
    given |= {"run.resume": "never", "run.name": "cell"}
    given |= {"run.eval_every": "0", "run.save_every": "0", "schedule.warmup": "2"}
    given |= {"schedule.steps": str(profile.steps), "run.eval_batches": "10"}
    health = folder / "s/cell/health_rank0.jsonl"
    for written in (folder / "s/cell/training_log.jsonl", health):
        written.unlink(missing_ok=True)
    launcher = [sys.executable]
    if cell.processes > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone"]
        launcher += ["--nproc_per_node", str(cell.processes)]
    out = folder / "cell.json"
    command = [*launcher, str(CELL), str(out), *(f"{k}={v}" for k, v in given.items())]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    measured: dict[str, Any] = json.loads(out.read_text())
    return measured | {"steps": judge.steps_of(health)}


def table(profile: Profile, results: dict[str, list[dict[str, Any]]]) -> str:
    """Medians over all timed steps, and what compare says of the change."""
    columns = (
        "change", "claimed", "step, ms", "CPU, ms", "samples/s", "speed, by compare",
        "peak, MB", "memory", "kept for backward, MB", "loss", "loss at equal step, by compare",
    )  # fmt: skip
    lines = [_line(*columns), _line(*("---" for _ in columns))]
    for cell in profile.cells:
        if cell.name not in results:
            lines.append(_line(cell.name, cell.claim, "not measured", *[""] * 8))
            continue
        own, base = (_summary(results[n], profile) for n in (cell.name, cell.against))
        same = abs(own["loss"] - base["loss"]) <= SAME * abs(base["loss"])
        reported = {} if cell.name == cell.against else _judged(cell, profile, results)
        cells = (
            cell.name,
            cell.claim,
            f"{own['ms']:.0f}",
            f"{own['cpu']:.0f}",
            f"{own['rate']:.0f}",
            reported.get("step_seconds", ""),
            f"{own['peak']:.0f}",
            f"{own['peak'] / base['peak'] - 1:+.0%}",
            f"{own['kept']:.0f}",
            f"{own['loss']:.4f}{' (same)' if same else ''}",
            reported.get("loss", ""),
        )
        lines.append(_line(*cells))
    return "\n".join(lines)


def _judged(
    cell: Cell, profile: Profile, results: dict[str, list[dict[str, Any]]]
) -> dict[str, str]:
    base, own = (
        [training["steps"] for training in results[name]] for name in (cell.against, cell.name)
    )
    seconds = "cpu_seconds" if profile.by_cpu else "step_seconds"
    return judge.said(base, own, seconds=seconds, warm_up=profile.warm_up)


def scaling(profile: Profile, results: dict[str, list[dict[str, Any]]]) -> str:
    """How much faster two processes are than one, of what was trained on both."""
    reported = []
    for name in ("baseline", "all"):
        if name in results and f"{name} on 2" in results:
            one, two = (_summary(results[n], profile)["rate"] for n in (name, f"{name} on 2"))
            reported.append(f"{name} {two / one:.2f} x")
    return f"\nFrom one process to two: {', '.join(reported) or 'not measured'}"


def utilization(profile: Profile, results: dict[str, list[dict[str, Any]]]) -> str:
    """Model FLOPs utilisation: the baseline's operations, since recomputing is no progress.

    Of what a product of large bf16 matrices reaches on the same device, not of its data sheet.
    """
    if "baseline" not in results:
        return "\nModel FLOPs utilisation: not measured"
    first = results["baseline"][0]
    wanted, peak = float(first["flops"]), float(first["matmul_flops"])
    used = {
        cell.name: _summary(results[cell.name], profile)["rate"] / cell.processes * wanted / peak
        for cell in profile.cells
        if cell.name in results
    }
    shares = ", ".join(f"{name} {share:.0%}" for name, share in used.items())
    return (
        f"\nModel FLOPs utilisation, of {peak / 1e12:.3g} TFLOP/s of a bf16 product: {shares}; "
        f"{wanted / 1e9:.3g} GFLOP a sample"
    )


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _summary(trainings: list[dict[str, Any]], profile: Profile) -> dict[str, float]:
    timed = [training["seconds"][profile.warm_up :] for training in trainings]
    middle = statistics.median(second for seconds in timed for second in seconds)
    cpu = statistics.median(float(t["cpu_seconds"]) for t in trainings)
    first = trainings[0]
    return {
        "ms": 1000 * middle,
        "cpu": 1000 * cpu,
        "rate": float(first["samples"]) / (cpu if profile.by_cpu else middle),
        "peak": statistics.median(float(t["peak_bytes"]) for t in trainings) / 1e6,
        "kept": float(first["saved_bytes"]) / 1e6,
        "loss": float(first["eval_loss"]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", choices=PROFILES, default="cpu")
    parser.add_argument("--out", type=Path, help="what was measured, as JSON")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--deadline", type=float, help="seconds after which no training begins")
    given = parser.parse_args()
    profile = PROFILES[given.profile]
    if given.profile == "gpu" and not torch.cuda.is_available():
        print("no GPU here: profile gpu was not measured")
        return 0
    began = time.monotonic()
    results: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        make_data(Path(folder), profile.length)
        for _ in range(given.repeats or profile.repeats):
            for cell in profile.cells:  # interleaved: what slows the machine slows them all
                if time.monotonic() - began > (given.deadline or profile.deadline):
                    break
                try:
                    measured = train(cell, profile, Path(folder))
                except subprocess.CalledProcessError as error:
                    print(f"{cell.name}: {error.stderr[-2000:]}", file=sys.stderr)
                    continue
                results.setdefault(cell.name, []).append(measured)
                if given.out:
                    given.out.write_text(json.dumps(results))
    print(table(profile, results))
    print(scaling(profile, results))
    if given.profile == "gpu":
        print(utilization(profile, results))
    rounds = min((len(trainings) for trainings in results.values()), default=0)
    print(f"\n{rounds} rounds in {time.monotonic() - began:.0f} s, profile {given.profile}")
    return 0 if results else 1


if __name__ == "__main__":
    sys.exit(main())
