"""What the parser's tests share: a way to feed bytes, and genuine runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Record
from ldlm_monitor.logs.parse import Parser

RUNS = Path(__file__).resolve().parents[2] / "together/corpus/runs"

Parse = Callable[..., list[Record]]


@pytest.fixture
def parse() -> Parse:
    """Parse whole contents as a file of their own, to its end."""

    def run(data: bytes | str, path: str = "train.log", **origin: Any) -> list[Record]:
        parser = Parser()
        raw = data.encode() if isinstance(data, str) else data
        owner = Origin(**{"run": "r", **origin})
        records = parser.feed(Chunk(path, (1, 1, 0), 0, 1, raw, final=True), owner, 0.0)
        return records + parser.finish(path)

    return run


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The genuine runs."""
    return RUNS
