"""One data set for all tests, made by what the command `prepare` runs; and small settings."""

from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest

from ldlm_trainer.config import Config, load


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    from ldlm_trainer.prepare import prepare  # needs torch

    # Of `pydoc`'s topics alone: the whole documentation takes a quarter of a minute to parse.
    text = folder / "topics.txt"
    text.write_text("\n".join(" ".join(topic.split()) for topic in topics.values()))
    counts = prepare(folder, text=text)
    assert counts["train"] > 2_000
    return folder


@pytest.fixture
def settings(data: Path, tmp_path: Path) -> Callable[..., Config]:
    """Settings of a tiny run in an empty folder; keywords are `section__key`."""

    def make(**given: Any) -> Config:
        small = {
            "data__folder": data,
            "run__save_dir": tmp_path / "saved",
            "run__health": False,
            "run__device": "cpu",
            "model__width": 32,
            "data__batch_size": 4,
            "schedule__steps": 20,
            "schedule__warmup": 2,
            "run__eval_every": 0,
            "run__save_every": 0,
        }
        pairs = {**small, **given}
        return load(
            None, [f"{key.replace('__', '.')}={_toml(value)}" for key, value in pairs.items()]
        )

    return make


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
