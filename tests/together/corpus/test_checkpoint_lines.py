"""Lines of public trainings about checkpoints: what is saved, what begins to be, and neither.

Labelled before a pattern was written. Of the half `closed` nobody who wrote them saw a line.
`doubtful`: the label could be another one.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Event
from ldlm_monitor.logs.parse import Parser

LINES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parent / "checkpoint_lines.jsonl").read_text("utf-8").splitlines()
]


def found(line: str) -> str:
    """`saved`, `started` or `none`, by the events of a line that stands alone."""
    chunk = Chunk("train.log", (1, 1, 0), 0, 1, f"{line}\n".encode(), final=True)
    kinds = {
        each.kind for each in Parser().feed(chunk, Origin("r"), 0.0) if isinstance(each, Event)
    }
    return next((each for each in ("saved", "started") if f"checkpoint_{each}" in kinds), "none")


@pytest.mark.parametrize(
    ("half", "saved", "started"), [("writing", 0.75, 0.8), ("closed", 0.7, 0.7)]
)
def test_most_words_of_a_checkpoint_are_known_and_hardly_others(
    half: str, saved: float, started: float
) -> None:
    lines = [each for each in LINES if each["half"] == half and not each.get("doubtful")]
    counts = Counter((each["label"], found(each["line"])) for each in lines)
    labels = Counter(each["label"] for each in lines)
    assert min(labels.values()) > 30
    assert counts["saved", "saved"] >= saved * labels["saved"]
    assert counts["started", "started"] >= started * labels["started"]
    assert counts["none", "saved"] + counts["started", "saved"] <= 1
    assert counts["none", "started"] <= 2
