"""Documents that a person has read: a test compares what is made with them.

`APPROVE=1 pytest tests/finished` writes them anew; read the difference then.
"""

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "documents"


def approve(name: str, text: str) -> None:
    """Fails unless the text is that of the document of this name."""
    place = FOLDER / name
    if os.environ.get("APPROVE"):
        place.parent.mkdir(exist_ok=True)
        place.write_text(text, encoding="utf-8")
    assert text == place.read_text(encoding="utf-8")
