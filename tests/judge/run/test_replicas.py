"""Checksums of ranks: which are replicas, and whose differ from theirs."""

from __future__ import annotations

import pytest

from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.judge.run.replicas import Replicas


def check(
    replicas: Replicas, step: int, sums: str, ranks: int | None = None, what: str = "parameters"
) -> Event | None:
    """A check at a step: a letter of checksum for each rank, `.` for a rank without a report."""
    found = None
    for rank, each in enumerate(sums):
        if each != ".":
            report = Event(
                kind="replica_checksum", severity="info", run="r", rank=rank, message="",
                time=100.0 * step + rank, position=Position(f"rank{rank}.jsonl", step, 0),
                fields={"step": step, "checksums": {what: each}},
            )  # fmt: skip
            found = replicas.observe(report, len(sums) if ranks is None else ranks) or found
    return found


@pytest.mark.parametrize(
    ("checks", "rank", "said"),
    [
        # Equal, and changed together: replicas. Then one differs.
        (["aaa", "bbb", "cxc"], 1, "parameters differ from those of 2 replicas (ranks 0,2)"),
        (["aaaaa", "bbbbb", "cxycc"], None, "parameters of ranks 1-2 differ from those of 3"),
        (["aa", "bb", "cx"], None, "of ranks 0-1 differ at step 3, but not at step 2: which is"),
        (["aaaa", "bbbb", "ccxx"], None, "which is right is unknown"),
        # Two groups of replicas, such as two stages.
        (["aabb", "ccdd", "eedx"], None, "of ranks 2-3 differ"),
        (["aaabbb", "cccddd", "eeefxf"], 4, "those of 2 replicas (ranks 3,5)"),
        # A rank that reports nothing is not compared.
        (["aaa", "bbb", "c.c"], None, None),
        # Equal without a change, or changed without having been equal: no replicas.
        (["aaa", "aaa", "abc"], None, None),
        (["abc", "ddd", "efg"], None, None),
        (["abc", "def", "ghi"], None, None),
        (["aaa", "bbb", "ccc", "ddd"], None, None),
    ],
)  # fmt: skip
def test_ranks_that_changed_together_and_then_differ_are_named_by_most(
    checks: list[str], rank: int | None, said: str | None
) -> None:
    replicas = Replicas()
    *before, last = [check(replicas, step, sums) for step, sums in enumerate(checks, 1)]
    assert before == [None] * len(before)
    if said is None:
        assert last is None
    else:
        assert last is not None
        assert said in last.message
        assert (last.kind, last.severity, last.rank) == ("replica_mismatch", "critical", rank)


def test_a_mismatch_is_named_once_and_at_the_line_of_its_rank() -> None:
    replicas = Replicas()
    found = [check(replicas, step, sums) for step, sums in enumerate(("aaa", "bbb", "cxc"), 1)]
    (mismatch,) = filter(None, found)
    assert (mismatch.position.path, mismatch.time) == ("rank1.jsonl", 302.0)
    assert mismatch.fields == {
        "family": "numerics", "role": "root", "step": 3, "quantity": "parameters", "ranks": "1",
    }  # fmt: skip
    assert check(replicas, 4, "dyd") is None  # it goes on to differ: it is no replica any more
    again = check(replicas, 5, "exf")
    assert again is not None
    assert again.fields["ranks"] == "0,2"


def test_quantities_are_compared_by_themselves() -> None:
    replicas = Replicas()
    for step, sums in enumerate(("aaa", "bbb", "ccc"), 1):
        assert check(replicas, step, sums) is None
    for step, sums in enumerate(("aab", "bbc", "ccd"), 4):
        assert check(replicas, step, sums, what="optimizer state") is None
    found = check(replicas, 7, "dde", what="optimizer state")
    assert found is None
    found = check(replicas, 8, "exf", what="optimizer state")
    assert found is not None
    assert (found.fields["quantity"], found.fields["ranks"]) == ("optimizer state", "0-1")


def test_where_the_number_of_ranks_is_unknown_later_checks_complete_one() -> None:
    replicas = Replicas()
    found = [check(replicas, step, sums, 99) for step, sums in enumerate(("aaa", "bbb", "cxc"), 1)]
    assert found == [None, None, None]
    found = [check(replicas, step, "def", 99) for step in range(4, 20)]
    assert [each.rank for each in found if each is not None] == [1]
    assert found[15] is not None  # 16 checks wait, and the third is compared when the next comes


def test_a_report_without_rank_or_step_is_no_check() -> None:
    replicas = Replicas()
    event = Event(
        kind="replica_checksum", severity="info", run="r", message="",
        fields={"step": 1, "checksums": {"parameters": "a"}}, position=Position("a", 1, 0),
    )  # fmt: skip
    assert replicas.observe(event, 1) is None
    assert check(replicas, 1, "aa") is None
    assert check(replicas, 2, "bb") is None
    assert check(replicas, 3, "cd") is not None
