"""Makes the pictures of triage/: the screen on the same inputs, before and after it was mended.

    python docs/images/make_triage.py FOLDER before        # with PYTHONPATH of an older checkout
    python docs/images/make_triage.py FOLDER after
    python docs/images/make_triage.py FOLDER pairs         # beside each other, into triage/

Needs the project installed with the extra `web`, tmux, Chromium and ImageMagick. All that is
shown of the logs is what the monitor says; 200 runs, a NaN of rank 1 and a long run are written
here.
"""

import asyncio
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.screen.app import MonitorApp
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.daemon.local_source import LocalSource
from ldlm_monitor.service.notify.silences import Silences

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CORPUS, EXAMPLES = ROOT / "tests/together/corpus/runs", ROOT / "examples"
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


BROWSER = "12-end-in-a-browser"


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
    (folder / "novel.txt").write_text("It was a dark and stormy night.\n" * 2310)
    (folder / "fourteen").mkdir()
    for number in range(14):
        steps = "".join(f"step {step}/40 loss {3 - step / 40:.3f}\n" for step in range(1, 41))
        text = steps + (CRASH if number == 9 else "")
        (folder / f"fourteen/train_seed{number:02}.log").write_text(text)
    for path in folder.rglob("*.*"):
        os.utime(path, (LAST_WRITE, LAST_WRITE))


def _row(rank: int, step: int) -> str:
    loss = "NaN" if (rank, step) == (1, 130) else 2 + 4 * math.exp(-step / 60)
    row = {"type": "step", "run": "gpt2", "rank": rank, "step": step, "time": BEGAN + step}
    return json.dumps({**row, "loss": loss, "total_steps": 1000}) + "\n"


PROGRAMS = (
    ("09-inputs-without-a-run", "later.log novel.txt", "Quit", (110, 10)),
    ("14-once-of-fourteen-runs", "--once --no-companions fourteen/*.log", r"\$ $", (110, 40)),
)
"""Rows that a whole program shows on a terminal: its arguments, what stands there at last, size."""


def ran(folder: Path, words: str, last: str, size: tuple[int, int]) -> str:
    """What the program of this Python shows, from its first line on."""
    name, width, height = folder.name, *size
    program = f"{sys.executable} -m ldlm_monitor {words} --state-dir {folder}/state"
    tmux = ("tmux", "-L", name)
    subprocess.run([*tmux, "new-session", "-d", "-x", str(width), "-y", "3000" if "--once" in words
                    else str(height), "env PS1='$ ' sh"], check=True)  # fmt: skip
    try:
        subprocess.run([*tmux, "send-keys", f"clear; {program}", "Enter"], check=True)
        shown = ""
        while not re.search(last, re.sub(r"\x1b\[[0-9;]*m", "", shown).strip("\n") + " "):
            time.sleep(8)  # the screen is empty until the first reading
            done = subprocess.run([*tmux, "capture-pane", "-e", "-p"], check=True,
                                  capture_output=True, text=True)  # fmt: skip
            shown = done.stdout
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)
    console = Console(record=True, width=width, file=io.StringIO(), color_system="truecolor")
    lines = shown.strip("\n").splitlines()
    kept = [line for line in lines if program.split(maxsplit=1)[0] not in line][:height]
    console.print(Text.from_ansi("\n".join(kept)), crop=False)
    drawn = console.export_svg(title=f"ldlm-monitor {words}", unique_id="OWN")
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    return drawn.replace("Fira Code", "DejaVu Sans Mono")


async def in_browser(folder: Path, out: Path) -> None:
    """The end of the screen in a browser, after `q`."""
    sys.path.append(str(ROOT / "tests/together/live"))
    from browser import browsing  # after aiohttp, of the extra `web`

    port = 19848
    program = (sys.executable, "-m", "ldlm_monitor", "train_logs/*.log", "--web",
               "--web-listen", f"127.0.0.1:{port}", "--state-dir", str(folder / "web"))  # fmt: skip
    process = await asyncio.create_subprocess_exec(*program, stderr=asyncio.subprocess.DEVNULL)
    try:
        await asyncio.sleep(8)
        async with browsing(folder / "profile", f"http://127.0.0.1:{port}") as browser:
            await asyncio.sleep(8)
            for _ in range(3):  # the first may close the digest
                await browser.call("Runtime.evaluate", expression=(
                    "document.querySelector('textarea')?.focus()"))  # fmt: skip
                await browser.press("q")
                await asyncio.sleep(2)
            await browser.picture(out)
    finally:
        process.terminate()
        await process.wait()


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
    for name, words, last, size in PROGRAMS:
        (out / f"{name}.svg").write_text(ran(inputs, words, last, size), encoding="utf-8")
    asyncio.run(in_browser(inputs, out / f"{BROWSER}.png"))


def pair(folder: Path) -> None:
    """The two pictures of each row, above each other, small enough for a repository."""
    for name in (*(row.name for row in ROWS), *(name for name, *_ in PROGRAMS), BROWSER):
        parts = []
        width, ratios = 760, []
        for when in ("before", "after"):
            drawn, ratio = f"<img src={when}/{name}.png>", 0.75
            if name != BROWSER:
                svg = (folder / when / f"{name}.svg").read_text(encoding="utf-8")
                drawn = svg.replace("OWN", f"{when}-")
                box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
                assert box is not None
                ratio = float(box[2]) / float(box[1])
            parts.append(f"<h3>{when}</h3>{drawn}")
            ratios.append(ratio)
        height = round(width * sum(ratios) + 68)
        page = folder / "page.html"
        style = "body{margin:0;font:14px sans-serif}h3{margin:4px;height:22px}"
        style += f"svg,img{{width:{width}px;display:block}}"
        page.write_text(f"<meta charset=utf-8><style>{style}</style>{''.join(parts)}", "utf-8")
        shot = folder / "shot.png"
        subprocess.run(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             f"--user-data-dir={folder / 'profile'}", f"--window-size={width},{height}",
             f"--screenshot={shot}", page.as_uri()], check=True, capture_output=True,
        )  # fmt: skip
        out = HERE / "triage" / f"{name}.png"
        out.parent.mkdir(exist_ok=True)
        subprocess.run(["convert", str(shot), "-strip", "-colors", "24", f"PNG8:{out}"], check=True)


def main() -> None:
    """Draw one time, or put both times beside each other."""
    folder, when = Path(sys.argv[1]).resolve(), sys.argv[2]
    pair(folder) if when == "pairs" else draw(folder, when)


if __name__ == "__main__":
    main()
