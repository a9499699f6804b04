"""Makes once.svg again: what `ldlm-monitor --once` really prints of one of the example logs.

    python docs/images/make.py

Needs the project installed. Prints nothing; the picture is written beside this file.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
LOG = "train_logs/train_20261121_083451_node0.log"
ROWS = "saved/bad_latents/training_log.jsonl"
LAST_WRITE = 1795250114
"""When the training ended, 2026-11-21 08:35:14 UTC. A checkout's files are younger."""

COLUMNS, ROW, COLUMN, MARGIN, BAR = 80, 19, 8.4, 22, 34
"""Characters a line; then pixels: line height, character width, margins."""
STYLE = (
    "text{font:14px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#d4d7dd;"
    "white-space:pre}.typed{fill:#8fd694}.rule{fill:#5c6370}"
)


def report() -> str:
    """What is printed, from copies that were last written when the originals were."""
    with tempfile.TemporaryDirectory() as folder:
        for name in (LOG, ROWS):
            copy = Path(folder) / name
            copy.parent.mkdir(parents=True)
            shutil.copy(EXAMPLES / name, copy)
            os.utime(copy, (LAST_WRITE, LAST_WRITE))
        command = [sys.executable, "-m", "ldlm_monitor", "--once", LOG]
        environment = {name: text for name, text in os.environ.items() if name[:5] != "LDLM_"}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode:  # the NaN passed, and the run finished: else it is not this picture
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def picture(lines: list[str]) -> str:
    """The lines as a window of a terminal; every one keeps its width in any font."""
    width = round(COLUMNS * COLUMN + 2 * MARGIN)
    height = BAR + MARGIN + ROW * len(lines)
    dots = "".join(
        f'<circle cx="{20 + 18 * index}" cy="17" r="5.5" fill="{colour}"/>'
        for index, colour in enumerate(("#ec6a5e", "#f4bf4f", "#61c554"))
    )
    texts = "\n".join(
        f'<text{_class(line)} x="{MARGIN}" y="{BAR + ROW * (index + 1)}" '
        f'textLength="{len(line) * COLUMN:.1f}">{escape(line)}</text>'
        for index, line in enumerate(lines)
        if line
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{escape(lines[0])}">\n'
        f"<style>{STYLE}</style>\n"
        f'<rect width="{width}" height="{height}" rx="9" fill="#1b1e24"/>\n'
        f"{dots}\n{texts}\n</svg>\n"
    )


def _class(line: str) -> str:
    if line.startswith("$ "):
        return ' class="typed"'
    return ' class="rule"' if set(line) in ({"="}, {"-"}) else ""


if __name__ == "__main__":
    typed = f"$ ldlm-monitor --once {LOG}"
    (HERE / "once.svg").write_text(picture([typed, *report().splitlines()]), encoding="utf-8")
