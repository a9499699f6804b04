"""The labelled failures: what a reader decided on public logs, half of them held back.

The logs stay outside; with a folder of them, `ldlm-monitor replay --decide LOGS/* --truth
tests/together/corpus/decisions.json` gives the figures of docs/run.md.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from ldlm_monitor.finished.backtest.decision_score import load_decisions, score_decisions
from ldlm_monitor.service.config import Settings

HERE = Path(__file__).parent
LIST, GIVEN = HERE / "decisions.json", HERE / "decisions_given.json"
ENTRIES = json.loads(LIST.read_text(encoding="utf-8"))
CORPUS = HERE.parents[2] / "../shared/corpus"


def test_at_least_sixty_failures_are_labelled_with_their_source() -> None:
    assert len(ENTRIES) >= 60
    assert len({each["sha256"] for each in ENTRIES}) == len(ENTRIES)
    assert all(each["repo"].startswith("github.com/") and each["why"] for each in ENTRIES)


def test_half_of_them_is_held_back_and_two_thirds_are_clear() -> None:
    halves = Counter(each["half"] for each in ENTRIES)
    assert halves["held"] * 2 == halves.total()
    assert sum(each["first_clear"] for each in ENTRIES) * 3 >= 2 * len(ENTRIES) - 2


def test_the_list_is_a_truth_file() -> None:
    assert [each.file for each in load_decisions(LIST)] == [each["file"] for each in ENTRIES]


def test_the_page_lists_each_log_on_which_two_readers_disagree() -> None:
    """The second reader saw neither the first one's decisions nor what the monitor says."""
    page = (HERE.parents[2] / "docs/run.md").read_text(encoding="utf-8")
    differ = [each for each in ENTRIES if each["decision"] != each["second"]["decision"]]
    assert f"{len(ENTRIES) - len(differ)} of {len(ENTRIES)} logs alike" in page
    for each in differ:
        row = f"| {each['file']} | `{each['decision']}` | `{each['second']['decision']}` |"
        assert row in page
    for each in ENTRIES:
        second, alike = each["second"], each not in differ
        assert each["clear"] == (each["first_clear"] and second["clear"] and alike)
    both = sum(each.clear for each in load_decisions(LIST))
    assert f"the {both} on which neither has a doubt" in page


def scored(*folders: str) -> tuple[float, float, int, int]:
    """The share decided, and rightly of these; false STOP and false RESTART."""
    files = tuple(str(CORPUS / each) for each in folders)
    score = score_decisions(Settings(files=files), GIVEN)
    assert score.logs == len([*score.cases]) > 0
    shares = score.decided / score.logs, score.right / score.decided
    return *shares, score.false_stop, score.false_restart


@pytest.mark.shared
def test_the_given_failures_are_decided_and_nine_of_ten_rightly() -> None:
    decided, right, false_stop, false_restart = scored("elastic_runs/*.log", "new/issues/*.log")
    assert decided >= 0.6
    assert right >= 0.9
    assert (false_stop, false_restart) == (0, 0)


@pytest.mark.shared
@pytest.mark.long
def test_so_are_all_given_logs_with_the_healthy_ones() -> None:
    decided, right, false_stop, false_restart = scored(
        "elastic_runs/*", "new/*", "new/issues/*", "public/*"
    )
    assert decided >= 0.6
    assert right >= 0.9
    assert (false_stop, false_restart) == (0, 0)
