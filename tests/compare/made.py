"""Logs of made-up trainings whose truth is known."""

import json
import math
import random
from pathlib import Path
from typing import Any

START = 1769681700.0


def noise(chance: random.Random, count: int, memory: float) -> list[float]:
    """Normal values of variance 1 that remember the one before them."""
    state, found = chance.gauss(0, 1), []
    for _ in range(count):
        state = memory * state + math.sqrt(1 - memory**2) * chance.gauss(0, 1)
        found.append(state)
    return found


def write_run(path: Path, *, steps: int = 300, seed: int = 1, **facts: Any) -> Path:
    """A `training_log.jsonl` under another name. `facts`: step (seconds), loss, memory (GB),
    warm_up (steps that take five times as long), spread (of step times), timed, batch.
    """
    chance = random.Random(seed)
    step_seconds, spread = facts.get("step", 0.2), facts.get("spread", 0.05)
    moved = noise(chance, steps, 0.4)
    at, rows = START, []
    for step in range(steps):
        seconds = step_seconds * math.exp(spread * moved[step])
        seconds *= 5 if step < facts.get("warm_up", 0) else 1
        at += seconds
        row = {
            "step": step,
            "loss": facts.get("loss", 2.0) * (1 + 3 / (step + 3)) + 0.05 * chance.gauss(0, 1),
            "samples_per_sec": facts.get("batch", 16) / seconds,
        }
        if facts.get("timed", True):
            row["time"] = at
        if "memory" in facts:
            row["gpu_memory_allocated_gb"] = facts["memory"]
        rows.append(json.dumps(row))
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path
