"""Ranks that no line accuses by itself: behind in their steps, or missing in what others list."""

from __future__ import annotations

import pytest

from ldlm_monitor.judge.incidents import RunFacts
from ldlm_monitor.judge.incidents.communication import behind
from tests.judge.incidents.cascades import incident_of, nccl_timeout, trained


def late(*steps: int) -> tuple[list[int], str] | None:
    found = behind(RunFacts(rank_steps=dict(enumerate(steps))))
    return None if found is None else (sorted(found.ranks), found.message)


@pytest.mark.parametrize(
    "steps", [(), (7,), (7, 6), (7, 7, 7), (7, 7, 6, 6)], ids=lambda each: f"{len(each)}"
)
def test_of_few_ranks_or_many_behind_none_is_the_exception(steps: tuple[int, ...]) -> None:
    assert late(*steps) is None


def test_a_rank_whose_last_step_is_before_the_others_is_named_weakly() -> None:
    assert late(7, 6, 7) == ([1], "rank 1 stopped before step 7")
    assert late(*[9] * 6, 3, 9) == ([6], "rank 6 stopped before step 9")
    found = behind(RunFacts(rank_steps={0: 7, 1: 6, 2: 7}))
    assert found is not None
    assert (found.confidence, found.why) == (
        "weak", ("the other 2 ranks reached step 7; rank 1 did not",),
    )  # fmt: skip


def test_ranks_of_a_group_are_named_by_their_global_numbers() -> None:
    """Tensor parallel over ranks 1, 3, 5, 7: torch counts them 0 to 3 in its group."""
    members = {rank: rank // 2 for rank in (1, 5, 7)}
    lines = [
        *trained(60),
        *nccl_timeout(members, 700.0, group="5", name="tp", group_ranks=members),
    ]
    incident = incident_of(lines)
    assert incident.root.rank == 3
    assert incident.collective is not None
    assert incident.collective.missing == "3"
