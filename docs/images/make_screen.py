"""Makes screen.svg again: the real screen on a simulated training of 64 ranks.

    python docs/images/make_screen.py

Needs the project installed. The rows are made here, with one NaN and one slow rank; all
that is shown of them is what the monitor says.
"""

import asyncio
import json
import math
import os
import random
import re
import tempfile
from pathlib import Path

from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.screen.app import MonitorApp
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.daemon.local_source import LocalSource
from ldlm_monitor.service.notify.silences import Silences

HERE = Path(__file__).resolve().parent
RANKS, STEPS, SLOW, BEGAN = 64, 400, 13, 1_795_249_000.0
SIZE = (112, 34)


def write_run(folder: Path) -> None:
    """Rows as `health_rank*.jsonl` has them, of a training that is still going on."""
    chance = random.Random(7)
    files = [(folder / f"health_rank{rank}.jsonl").open("w") for rank in range(RANKS)]
    for step in range(1, STEPS + 1):
        for rank, file in enumerate(files):
            if rank == SLOW and step > 350:
                continue
            loss: float | str = 1.9 + 6 * math.exp(-step / 80) + chance.gauss(0, 0.07)
            now = BEGAN + 1.5 * step + rank / 1000
            row: dict[str, object] = {"type": "step", "step": step, "time": now, "loss": loss}
            if rank == 0:
                row |= {
                    "loss": "NaN" if step == 260 else loss,
                    "grad_norm": abs(chance.gauss(0.6, 0.1)) + 3 * math.exp(-step / 60),
                    "learning_rate": 3e-4 * min(1, step / 100) * (1 - step / 2000),
                    "tokens_per_second": 412_000 + chance.gauss(0, 6000),
                    "memory_allocated_bytes": 61e9 + chance.gauss(0, 1e8),
                    "total_steps": 1000,
                }
            file.write(json.dumps(row) + "\n")
            beat = {"run": "gpt2", "rank": rank, "host": f"node{rank // 8}", "pid": 100 + rank}
            phase = "all_reduce" if rank == SLOW else "forward"
            beating = {"type": "heartbeat", **beat, "step": step, "phase": phase, "time": now}
            file.write(json.dumps(beating) + "\n")
    for file in files:
        file.close()


async def picture(app: MonitorApp) -> str:
    """The page of the run, drawn without a terminal, asking for no font from elsewhere."""
    async with app.run_test(size=SIZE) as pilot:
        for _ in range(5):
            await app.workers.wait_for_complete()
            await pilot.pause(0.3)
        drawn = app.export_screenshot(title="ldlm-monitor 'saved/gpt2/*.jsonl'")
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    return re.sub(r"terminal-\d+-", "t-", drawn).replace("Fira Code", "ui-monospace,monospace")


def main() -> None:
    """Simulate, replay, draw."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "saved/gpt2"
        folder.mkdir(parents=True)
        write_run(folder)
        os.chdir(name)
        replay = Replay(Settings(files=("saved/gpt2/*.jsonl",), run="gpt2"))
        for _ in replay.transitions():
            pass
        snapshot = replay.snapshot()
        silences = Silences(Path(name) / "silences.sqlite")
        source = LocalSource(lambda: snapshot, silences, "saved/gpt2/*.jsonl")
        app = MonitorApp(source, ascii_only=False, clock=lambda: snapshot.at + 1)
        drawn = asyncio.run(picture(app))
        silences.close()
    (HERE / "screen.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
