"""Logs of made-up trainings whose truth is known."""

import json
import math
import random
from pathlib import Path
from typing import Any

from interval_coverage import remembering

START = 1769681700.0


def write_run(path: Path, *, steps: int = 300, seed: int = 1, **facts: Any) -> Path:
    """A `training_log.jsonl` under another name. `facts`: step (seconds), loss, memory (GB),
    warm_up (steps that take five times as long), spread (of step times), timed, batch.
    """
    chance = random.Random(seed)
    step_seconds, spread = facts.get("step", 0.2), facts.get("spread", 0.05)
    moved = remembering(chance, steps, 0.4)
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
