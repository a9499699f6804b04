"""A copy of the package that a test extends as a person does: by a module and a line in a table."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "monitor/ldlm_monitor"


class Extended:
    """The copy in `folder`, and the processes that run it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(
            PACKAGE, folder / "ldlm_monitor", ignore=shutil.ignore_patterns("__pycache__")
        )

    def add(self, module: str, text: str) -> None:
        """Write a module, by its path in the package."""
        (self.folder / "ldlm_monitor" / module).write_text(text, encoding="utf-8")

    def add_lines(self, module: str, before: str, *lines: str) -> None:
        """Put lines before the only line of a module that begins so."""
        path = self.folder / "ldlm_monitor" / module
        old = path.read_text("utf-8").splitlines(keepends=True)
        (place,) = (number for number, line in enumerate(old) if line.startswith(before))
        old[place:place] = [f"{line}\n" for line in lines]
        path.write_text("".join(old), encoding="utf-8")

    def start(self, *words: str, cwd: Path, **variables: str) -> subprocess.Popen[str]:
        """Start `ldlm-monitor` with these words."""
        return subprocess.Popen(
            [sys.executable, "-m", "ldlm_monitor", *words],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(self.folder), **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, cwd: Path, **variables: str) -> tuple[int, str, str]:
        """The exit code, output and messages of `ldlm-monitor` with these words."""
        process = self.start(*words, cwd=cwd, **variables)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err
