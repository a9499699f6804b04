"""The examples of docs/api.md run, and its routes are those that are served."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs/api.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("example", "prints"),
    [
        (EXAMPLES[0], "a 2 CRITICAL ['Watchdog', 'NonFiniteLoss']"),
        (EXAMPLES[1], "[10]"),
        (EXAMPLES[2], ""),
    ],
    ids=["monitor", "records", "callback"],
)
def test_an_example_does_what_the_page_says(example: str, prints: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, env=os.environ, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert prints in done.stdout


def test_all_examples_are_tried() -> None:
    assert len(EXAMPLES) == 3
