"""Every example and counter-example of every packaged definition file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ldlm_monitor.logs.parse import Parser, definitions
from ldlm_monitor.logs.parse.coverage import try_examples
from ldlm_monitor.logs.parse.meanings import meaning_of_kind

RECOGNISED = [each for each in definitions.packaged_files() if each.stem != "made"]
"""The files with patterns; the other one says what kinds mean that Python makes."""


def test_what_kinds_mean_is_read_whole_though_only_the_heads_of_the_files_are() -> None:
    for path in definitions.packaged_files():
        for kind, said in definitions.load(path).meanings.items():
            found = meaning_of_kind(kind)
            assert found.words == {*said.words}, kind
            assert (found.fault, found.counts, found.lasts) == (said.fault, said.counts, said.lasts)


@pytest.mark.parametrize("path", RECOGNISED, ids=lambda path: path.stem)
def test_the_examples_of_a_definition_file_give_exactly_what_is_beside_them(path: Path) -> None:
    trial = try_examples(path, definitions.load(path), Parser())
    assert trial.failures == []
    assert trial.examples > 0
