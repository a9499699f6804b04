"""The labelled failures: what a reader decided on public logs, half of them held back.

The logs stay outside; with a folder of them, `ldlm-monitor replay --decide LOGS/* --truth
tests/corpus/decisions.json` gives the figures of docs/run.md.
"""

import json
from collections import Counter
from pathlib import Path

from ldlm_monitor.analysis.backtest.decisions import load_decisions

LIST = Path(__file__).parent / "decisions.json"
ENTRIES = json.loads(LIST.read_text(encoding="utf-8"))


def test_at_least_sixty_failures_are_labelled_with_their_source() -> None:
    assert len(ENTRIES) >= 60
    assert len({each["sha256"] for each in ENTRIES}) == len(ENTRIES)
    assert all(each["repo"].startswith("github.com/") and each["why"] for each in ENTRIES)


def test_half_of_them_is_held_back_and_two_thirds_are_clear() -> None:
    halves = Counter(each["half"] for each in ENTRIES)
    assert halves["held"] * 2 == halves.total()
    assert sum(each["clear"] for each in ENTRIES) * 3 >= 2 * len(ENTRIES) - 2


def test_the_list_is_a_truth_file() -> None:
    assert [each.file for each in load_decisions(LIST)] == [each["file"] for each in ENTRIES]
