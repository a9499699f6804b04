"""Which rank is named where several report: by comparing what they say, and when."""

from __future__ import annotations

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.judge.core.monitor import Monitor
from tests.judge.incidents.book import AT, Book


def of(*events: dict[str, object], **facts: object) -> IncidentView:
    """The incident of a crashed run whose ranks logged these events."""
    book = Book(state="crashed", ended_at=AT + 30, **facts)
    for number, each in enumerate(events):
        given = {"severity": "critical", "at": AT + number / 100, **each}
        book.event(str(given.pop("kind")), **given)  # type: ignore[arg-type]
    (incident,) = book.views(AT + 60)
    return incident


def nan(
    rank: int, step: int | None, quantity: str = "loss", **changes: object
) -> dict[str, object]:
    return {
        "kind": "nonfinite_metric", "rank": rank, "step": step, "quantity": quantity,
        "family": "numerics", "path": f"rank{rank}.log", **changes,
    }  # fmt: skip


def died(
    rank: int, message: str = "RuntimeError: NaN in weights", **changes: object
) -> dict[str, object]:
    return {
        "kind": "python_exception", "rank": rank, "message": message, "exc_type": "RuntimeError",
        "path": f"rank{rank}.log", **changes,
    }  # fmt: skip


def differs(rank: int, other: int = 0) -> dict[str, object]:
    return {
        "kind": "ddp_param_mismatch",
        "rank": rank,
        "other_rank": other,
        "path": f"rank{rank}.log",
    }


def silent(rank: int) -> dict[str, object]:
    """A line of a rank that reports nothing."""
    return {"kind": "note", "rank": rank, "severity": "info", "role": "context"}


def called(rank: int, op: str, other: int, others: str) -> dict[str, object]:
    return {
        "kind": "collective_mismatch", "rank": rank, "path": f"rank{rank}.log",
        "rank_a": rank, "op_a": op, "shape_a": "8", "rank_b": other, "op_b": others, "shape_b": "8",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "others", "named"),
    [
        (
            [1, 2, 3],
            [],
            0,
        ),  # most differ from process 0, with which DDP compares: it is the odd one
        ([1, 2], [3], 0),
        ([1, 2], [3, 4], None),
        ([2], [], None),  # two ranks are known, and either may be wrong
    ],
)
def test_ranks_that_differ_from_process_0_in_parameters(
    ranks: list[int], others: list[int], named: int | None
) -> None:
    incident = of(*map(differs, ranks), *map(silent, others))
    assert incident.root.rank == named
    assert incident.root.kind == "ddp_param_mismatch"


def test_one_rank_alone_that_differs_from_process_0_is_the_odd_one() -> None:
    incident = of(differs(2), silent(1), silent(3))
    assert (incident.root.rank, incident.root.tier) == (2, "named")
    assert "only rank 2 differs from rank 0" in incident.root.why


def test_the_rank_whose_call_differs_from_that_of_most_is_named() -> None:
    incident = of(*(called(rank, "ALLREDUCE", 3, "BROADCAST") for rank in (0, 1)))
    assert (incident.root.rank, incident.root.tier) == (3, "named")
    assert "rank 3 called BROADCAST of shape [8]; the other 2 ranks did not" in incident.root.why
    assert of(called(0, "ALLREDUCE", 3, "BROADCAST")).root.rank is None  # of two, either is wrong


def test_the_rank_that_is_reported_first_as_hanging_is_named() -> None:
    hangs = [
        {"kind": "nvrx_rank_hang", "rank": rank, "role": "evidence", "path": f"{rank}.log"}
        for rank in (5, 2, 7)
    ]
    incident = of(*hangs)
    assert (incident.root.rank, incident.root.tier) == (5, "named")
    assert "by the earliest of 3 such reports" in incident.root.why[0]


@pytest.mark.parametrize(
    ("stuck", "of_ranks", "named"), [(1, 8, True), (2, 8, False), (2, 16, True)]
)
def test_a_watchdog_that_is_stuck_on_few_ranks_alone_is_their_own_fault(
    stuck: int, of_ranks: int, *, named: bool
) -> None:
    events = [{"kind": "gil_hang_suspected", "rank": rank} for rank in range(stuck)]
    incident = of(*events, world_size=of_ranks)
    assert (incident.root.tier == "named") is named
    assert incident.root.ranks == (("0" if stuck == 1 else "0-1") if named else "")


def test_a_rank_that_the_others_numbers_came_from_is_named_by_its_step() -> None:
    incident = of(nan(0, 41), nan(1, 41), nan(2, 40), died(0), died(1))
    assert (incident.root.kind, incident.root.rank) == ("nonfinite_metric", 2)
    assert "rank 2 logged it at step 40, ranks 0-1 at a later one" in incident.root.why
    undecided = of(nan(0, 40), nan(1, 41), nan(2, 40), died(1))
    assert (undecided.root.kind, undecided.root.rank) == ("nonfinite_metric", 1)
    without = of(nan(0, 41), nan(1, 41), nan(2, None), died(1))
    assert without.root.rank == 1


def test_losses_are_compared_before_gradients_that_are_reduced_in_the_same_step() -> None:
    incident = of(
        *(nan(rank, 39, "grad_norm") for rank in (0, 1)), nan(0, 41), nan(1, 40), died(0)
    )  # fmt: skip
    assert incident.root.rank == 1
    without = of(nan(0, 39, "grad_norm"), nan(1, 40, "grad_norm"), nan(1, 38), died(0))
    assert without.root.rank == 1  # rank 0 logs no loss: whatever came first counts


def test_an_exception_after_numbers_that_were_not_finite_follows_from_them() -> None:
    incident = of(nan(1, 41, message="the loss is NaN"), died(1))
    assert (incident.root.kind, incident.root.message) == ("nonfinite_metric", "the loss is NaN")
    assert "no step was taken between these numbers and the exception" in incident.root.why
    before = of(died(1), nan(1, 41))
    assert before.root.kind == "python_exception"


def test_an_error_of_most_ranks_names_none_of_them() -> None:
    incident = of(*(died(rank, "KeyError: 'x'") for rank in range(4)), world_size=4)
    assert (incident.root.rank, incident.root.ranks) == (None, "0-3")


def test_ranks_that_lost_another_one_do_not_count_as_causes() -> None:
    lost = [
        died(rank, "RuntimeError: Connection closed by peer", traceback="Connection closed by peer")
        for rank in (0, 1, 2)
    ]
    incident = of(*lost, died(3, "KeyError: 'x'"))
    assert (incident.root.rank, incident.root.tier) == (3, "local")
    assert "only waited for, or lost, another rank" in " ".join(incident.root.why)


def exited(rank: int, code: int, **changes: object) -> dict[str, object]:
    return {
        "kind": "elastic_worker_failed", "rank": rank, "exitcode": code, "role": "death",
        "family": "elastic", "pid": 40 + rank, **changes,
    }  # fmt: skip


def broken(kind: str, **changes: object) -> dict[str, object]:
    """A line of the kernel of machine n1."""
    return {"kind": kind, "family": "host", "host": "n1", "path": "kern.log", **changes}


def test_a_machines_fault_that_explains_how_a_process_died_is_the_cause() -> None:
    incident = of(exited(2, -11), exited(3, -6), broken("host_segfault"))
    assert (incident.root.kind, incident.root.tier) == ("host_segfault", "hardware")
    assert (incident.root.rank, incident.root.host) == (2, "n1")
    assert incident.root.why[0] == "the machine itself reported it on n1"
    other = of(exited(2, -9), broken("host_segfault"))  # SIGKILL is no sign of it
    assert other.root.tier == "local"


def test_a_machines_fault_that_does_not_explain_the_error_is_of_another_job() -> None:
    incident = of(died(1, "KeyError: 'x'"), broken("host_segfault"))
    assert (incident.root.kind, incident.root.rank) == ("python_exception", 1)


@pytest.mark.parametrize(
    ("deaths", "rank", "message", "confidence"),
    [
        ([(1, -9)], 1, "process killed by SIGKILL", "probable"),
        ([(1, -9), (2, -15)], 1, "process killed by SIGKILL", "probable"),
        ([(1, 1)], 1, "process left with exit code 1", "weak"),
        ([(1, -9), (2, -11)], None, "process killed by SIGKILL", None),
    ],
)
def test_of_processes_that_print_nothing_the_exit_code_says_who_died_first(
    deaths: list[tuple[int, int]], rank: int | None, message: str, confidence: str | None
) -> None:
    incident = of(*(exited(*each) for each in deaths), world_size=8)
    assert incident.root.message == message
    assert incident.root.rank == (1 if rank is None else rank)
    assert confidence is None or incident.confidence == confidence


@pytest.mark.parametrize(
    ("code", "confidence"),
    [
        *((code, "probable") for code in (-9, -11, -7, -4, -8)),
        (-6, "weak"),
        (1, "weak"),
        (3, "weak"),
    ],
)
def test_a_signal_that_no_lost_peer_causes_is_the_processes_own(code: int, confidence: str) -> None:
    incident = of(exited(1, code), world_size=8)
    assert (incident.root.rank, incident.confidence) == (1, confidence)


def test_numbers_before_an_exception_are_a_probable_cause() -> None:
    sure = of(died(1), exited(1, 1))
    assert sure.confidence == "confirmed"
    assert of(nan(1, 41), died(1), exited(1, 1)).confidence == "probable"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (-15, "rank 2 was terminated by its launcher"),
        (-6, "rank 2 was killed by SIGABRT; no other line names it"),
        (1, "rank 2 left with exit code 1; no other line names it"),
    ],
)
def test_why_the_rank_that_a_launcher_blames_is_not_the_cause(code: int, reason: str) -> None:
    table = {
        "kind": "elastic_failure_table", "role": "death", "family": "elastic",
        "failures": [{"rank": 2, "exitcode": code, "root": True}],
    }  # fmt: skip
    (claim,) = of(died(1, "KeyError: 'x'"), table, world_size=8).claims
    assert (claim.rank, claim.agrees, claim.reason) == (2, False, reason)


def test_the_task_that_jax_misses_is_named_and_the_others_die_of_it() -> None:
    source = "2022-11-15 16:03:1{} external/xla/"
    gone = "UNAVAILABLE: Task /job:jax_worker/replica:0/task:37 heartbeat timeout."
    lines = [
        source.format("5.140058: E")
        + "tsl/distributed_runtime/coordination/coordination_service.cc:954] "
        + "/job:jax_worker/replica:0/task:37 has been set to ERROR in coordination service: "
        + gone,
        *5 * [
            source.format("6.140700: F")
            + "xla/pjrt/distributed/client.h:75] Terminating process because the coordinator "
            + f"detected missing heartbeats. Status: {gone}"
        ],
    ]  # fmt: skip
    monitor, now = Monitor(), 1_668_528_196.0
    text = "".join(f"I1115 16:00:2{n}.000 1 trainer.py:501] step {n} loss 2.5\n" for n in range(9))
    text += "\n".join([*lines, ""])
    monitor.feed(Chunk("train.log", (1, 0, 0), 0, 1, text.encode()), now)
    monitor.finish(now + 1)
    snapshot = monitor.snapshot()
    (run,), (incident,) = snapshot.runs, snapshot.incidents
    assert (run.state, run.health) == ("crashed", "CRITICAL")
    assert incident.root.rank == 37
    assert incident.decision is not None
    assert incident.decision.decision == "RESTART"


def error(kind: str, rank: int, **changes: object) -> dict[str, object]:
    """A process's own error of any kind."""
    return {"kind": kind, "rank": rank, "path": f"rank{rank}.log", **changes}


@pytest.mark.parametrize(
    ("other", "doubted"),
    [
        (died(2, "OSError: x", exc_type="OSError"), True),
        (error("cuda_error", 2), True), (error("segfault", 2), True),
        (nan(2, 41), False), (silent(2), False), (died(2, at=AT + 30), False),
    ],
    ids=["exception", "cuda", "segfault", "nan", "silent", "much later"],
)  # fmt: skip
def test_a_rank_whose_own_error_may_be_as_early_is_named_beside_the_first(
    other: dict[str, object], doubted: bool
) -> None:
    incident = of(died(1), {"at": AT + 0.1, **other})
    assert any("failed at about the same time" in why for why in incident.root.why) is doubted


@pytest.mark.parametrize("kind", ["python_exception", "cuda_error", "segfault"])
def test_a_job_that_is_stopped_after_an_error_failed_by_the_error(kind: str) -> None:
    """The scheduler's line gives no reason: it only says that the job ends."""
    stopped = {"kind": "slurm_step_cancelled", "at": AT + 0.5, "path": "slurm.out"}
    assert of(error(kind, 1, at=AT - 5), stopped).root.kind == kind
