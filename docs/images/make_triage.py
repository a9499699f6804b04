"""Makes the pictures of triage/: the screen on the same inputs, before and after it was mended.

    python docs/images/make_triage.py FOLDER before        # with PYTHONPATH of an older checkout
    python docs/images/make_triage.py FOLDER after
    python docs/images/make_triage.py FOLDER pairs         # beside each other, into triage/

Needs the project installed, and for the pairs Chromium and ImageMagick. All that is shown of the
logs is what the monitor says; 200 runs, a NaN of rank 1 and a long run are written here.
"""

import asyncio
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ldlm_monitor.config import Settings
from ldlm_monitor.daemon.local_source import LocalSource
from ldlm_monitor.notify.silences import Silences
from ldlm_monitor.playback.replay import Replay
from ldlm_monitor.tui.app import MonitorApp

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CORPUS, EXAMPLES = ROOT / "tests/corpus/runs", ROOT / "examples"
BEGAN, LAST_WRITE = 1_795_249_000.0, 1_795_250_114.0
CRASH = "step 41 rank 1\nTraceback (most recent call last):\nRuntimeError: bad batch\n"


@dataclass(frozen=True)
class Row:
    """A row of the table: its inputs, the keys that show it, the size of the screen."""

    name: str
    inputs: str
    keys: Sequence[str] = ()
    size: tuple[int, int] = (110, 24)
    theme: str = ""


ROWS = (
    Row("01-two-hundred-runs", "sweep/*.log", size=(110, 16)),
    Row("02-loss-stuck-at-100", "stuck/*.log", ("2",)),
    Row("03-nan-of-rank-1", "nan/*.jsonl", ("2",)),
    Row("04-keys-act-on-the-cursor", "train_logs/*.log", ("down", "down", "2")),
    Row("05-names-at-40-columns", "sweep/*.log", size=(40, 14)),
    Row("06-speed-of-bars", "train_logs/*.log", size=(150, 10)),
    Row("07-events-of-all-runs", "train_logs/*.log", ("5",)),
    Row("08-zoomed-in", "long/*.jsonl", ("2", *["plus"] * 7)),
    Row("10-runs-in-the-palette", "train_logs/*.log", ("ctrl+p", *"0835")),
    Row(
        "11-search-counts",
        "train_logs/*_083451_*.log",
        ("4", "home", "slash", *"Invalid", "enter", "w"),
    ),
    Row("13-lr-over-steps", "train_logs/*_083451_*.log", ("2",), size=(110, 32)),
    Row("15-light-theme", "train_logs/*_083451_*.log", ("2",), theme="textual-light"),
)


def write_inputs(folder: Path) -> None:
    """Logs of all rows, last written when the example trainings were."""
    for name in ("train_logs", "saved"):
        shutil.copytree(EXAMPLES / name, folder / name)
    stuck = CORPUS / "upstream/D5_lr_100_stuck_at_clamp/train_logs"
    shutil.copytree(stuck, folder / "stuck")
    for name in ("sweep", "nan", "long"):
        (folder / name).mkdir()
    for number in range(200):
        name = f"train_lr3e-4_bs256_seed{number:03}_variant_{'ab'[number % 2]}.log"
        steps = "".join(f"step {step} loss {3 - step / 40:.3f}\n" for step in range(1, 41))
        (folder / "sweep" / name).write_text(steps + (CRASH if number == 199 else ""))
    for rank in range(3):
        rows = [_row(rank, step) for step in range(1, 241)]
        (folder / f"nan/health_rank{rank}.jsonl").write_text("".join(rows))
    rows = [json.dumps({"step": step, "time": BEGAN + step / 50, "lr": 3e-4,
                        "loss": 9.0 if step == 9 else 2 + math.sin(step / 40) / 3}) + "\n"
            for step in range(1, 50_001)]  # fmt: skip
    (folder / "long/training_log.jsonl").write_text("".join(rows))
    for path in folder.rglob("*.*"):
        os.utime(path, (LAST_WRITE, LAST_WRITE))


def _row(rank: int, step: int) -> str:
    loss = "NaN" if (rank, step) == (1, 130) else 2 + 4 * math.exp(-step / 60)
    row = {"type": "step", "run": "gpt2", "rank": rank, "step": step, "time": BEGAN + step}
    return json.dumps({**row, "loss": loss, "total_steps": 1000}) + "\n"


async def picture(app: MonitorApp, row: Row) -> str:
    """The screen after the keys of the row, asking for no font from elsewhere."""
    async with app.run_test(size=row.size) as pilot:
        if row.theme:
            app.theme = row.theme
        for key in ("", *row.keys, ""):
            if key:
                await pilot.press(key)
            for _ in range(3):
                await app.workers.wait_for_complete()
                await pilot.pause(0.1)
        drawn = app.export_screenshot(title=row.inputs)
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    return re.sub(r"terminal-\d+-", "OWN", drawn).replace("Fira Code", "DejaVu Sans Mono")


def draw(folder: Path, when: str) -> None:
    """A picture of each row."""
    inputs, out = folder / f"inputs-{when}", folder / when
    inputs.mkdir()
    out.mkdir()
    write_inputs(inputs)
    os.chdir(inputs)
    silences = Silences(folder / f"{when}.sqlite")
    for row in ROWS:
        replay = Replay(Settings(files=(row.inputs,)))
        for _ in replay.transitions():
            pass
        snapshot = replay.snapshot()
        source = LocalSource(lambda seen=snapshot: seen, silences, row.inputs)
        at = max(run.last_progress_at or 0.0 for run in snapshot.runs) + 49
        app = MonitorApp(source, ascii_only=False, clock=lambda now=at: now)
        (out / f"{row.name}.svg").write_text(asyncio.run(picture(app, row)), encoding="utf-8")
        print(row.name, len(snapshot.runs), flush=True)
    silences.close()


def pair(folder: Path) -> None:
    """The two pictures of each row, above each other, small enough for a repository."""
    for row in ROWS:
        parts = []
        for when in ("before", "after"):
            svg = (folder / when / f"{row.name}.svg").read_text(encoding="utf-8")
            parts.append(f"<h3>{when}</h3>" + svg.replace("OWN", f"{when}-"))
        box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', parts[1])
        assert box is not None
        width = 760
        height = round(2 * (width * float(box[2]) / float(box[1]) + 34))
        page = folder / "page.html"
        style = "body{margin:0;font:14px sans-serif}h3{margin:4px;height:22px}"
        style += f"svg{{width:{width}px;display:block}}"
        page.write_text(f"<meta charset=utf-8><style>{style}</style>{''.join(parts)}", "utf-8")
        shot = folder / "shot.png"
        subprocess.run(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             f"--user-data-dir={folder / 'profile'}", f"--window-size={width},{height}",
             f"--screenshot={shot}", page.as_uri()], check=True, capture_output=True,
        )  # fmt: skip
        out = HERE / "triage" / f"{row.name}.png"
        out.parent.mkdir(exist_ok=True)
        subprocess.run(["convert", str(shot), "-strip", "-colors", "24", f"PNG8:{out}"], check=True)


def main() -> None:
    """Draw one time, or put both times beside each other."""
    folder, when = Path(sys.argv[1]).resolve(), sys.argv[2]
    pair(folder) if when == "pairs" else draw(folder, when)


if __name__ == "__main__":
    main()
