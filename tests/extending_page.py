"""The examples of `docs/extending.md`, which tests run as they stand there."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs/extending.md"


def example(heading: str) -> str:
    """The module that a section of the page shows."""
    section = PAGE.read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (module,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return module
