"""One training of the benchmark, in a process of its own: cell.py OUT.json section.key=value ...

Run by `improvements.py`, alone or by torchrun. Rank 0 writes what it measured.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from ldlm_trainer.config import load
from ldlm_trainer.data import MicroBatches
from ldlm_trainer.health_file import Health
from ldlm_trainer.held_out import evaluate
from ldlm_trainer.rank_process import joined
from ldlm_trainer.train import Trainer


def saved_bytes(trainer: Trainer) -> int:
    """Bytes of activations that one forward pass keeps for the backward pass."""
    kept: dict[int, int] = {}
    weights = {p.data_ptr() for p in trainer.model.parameters()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    batch = MicroBatches(trainer.train_split, trainer.plan, trainer.process.rank)[0, 0]
    trainer.model.train()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        trainer.stepper.probe(trainer.model, batch, trainer.train_split.mask_id)
    return sum(kept.values())


def flops_a_sample(trainer: Trainer) -> float:
    """Floating-point operations of matrix products and attention, forward and backward."""
    batch = MicroBatches(trainer.train_split, trainer.plan, trainer.process.rank)[0, 0]
    with FlopCounterMode(display=False) as counter:
        trainer.stepper.probe(trainer.model, batch, trainer.train_split.mask_id).backward()
    trainer.model.zero_grad(set_to_none=True)
    return counter.get_total_flops() / len(batch.tokens)


def matmul_flops(device: torch.device, size: int) -> float:
    """Floating-point operations a second that a product of two bf16 matrices reaches here."""
    matrix = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        float((matrix @ matrix)[0, 0])  # waits for the device
        taken.append(time.perf_counter() - began)
    return 2 * size**3 / min(taken)


class Peak:
    """Memory at most taken since it was made: on the GPU, or resident beyond what was there.

    Linux counts the resident peak anew when 5 is written to clear_refs (proc(5)).
    """

    def __init__(self) -> None:
        self._before = 0
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        else:
            Path("/proc/self/clear_refs").write_text("5")
            self._before = _status("VmRSS")

    def bytes(self) -> int:
        if torch.cuda.is_available():
            return torch.cuda.max_memory_allocated()
        return _status("VmHWM") - self._before


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


class TellsCpuTime:
    """The callback of a training, which gets the processor time of each step, too."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._before = time.process_time()

    def on_step(self, step: int, **values: Any) -> None:
        now = time.process_time()
        self._health.on_step(step, cpu_seconds=now - self._before, **values)
        self._before = now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._health, name)


def main(out: Path, given: list[str]) -> None:
    settings = load(None, given)
    with joined(settings.run) as process, Trainer(settings, process) as trainer:
        peak = Peak()
        trainer.health = TellsCpuTime(trainer.health)
        began = time.process_time()
        trainer.train()
        cpu = time.process_time() - began
        taken = peak.bytes()
        loss = evaluate(trainer.model, trainer.held_out, settings, process)["eval_loss"]
        activations, flops = saved_bytes(trainer), flops_a_sample(trainer)
        reached = matmul_flops(process.device, 8192 if process.device.type == "cuda" else 256)
        if process.rank == 0:
            rows = (settings.folder / "training_log.jsonl").read_text().splitlines()
            steps = [json.loads(row) for row in rows]
            out.write_text(
                json.dumps(
                    {
                        "seconds": [step["step_seconds"] for step in steps],
                        "data_seconds": [step["data_seconds"] for step in steps],
                        "cpu_seconds": cpu / len(steps),
                        "samples": steps[-1]["batch_size"],
                        "peak_bytes": taken,
                        "saved_bytes": activations,
                        "eval_loss": loss,
                        "flops": flops,
                        "matmul_flops": reached,
                    }
                )
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
