"""One decider: alert, message, report and screen name the rank that the incident names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldlm_monitor.base.incident_view import IncidentView
from ldlm_monitor.base.records import Event, Position, Sample
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.notify.message import story_of

TESTS = Path(__file__).resolve().parents[2]
FOLDERS = (
    TESTS / "judge/incidents/injected",
    TESTS / "together/corpus/runs/elastic",
    TESTS.parent / "../shared/corpus/elastic_runs",
)
LOGS = sorted(path for folder in FOLDERS for path in folder.rglob("*.log"))
START = 1_780_000_000.0


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_view_of_a_failure_names_the_incidents_rank(path: Path) -> None:
    played = Replay(Settings(files=(str(path),), companions=False))
    fired = [each for each in played.transitions() if each.state == "firing"]
    snapshot = played.snapshot()
    incidents = {each.id: each for each in snapshot.incidents}
    for each in fired:
        if each.incident not in incidents or each.labels["severity"] != "critical":
            continue
        incident = incidents[each.incident]
        rank = incident.root.rank if incident.confidence != "none" else None
        shown = None if rank is None else str(rank)
        assert each.labels.get("rank") in (shown, None), "an alert is sent before the end"
        story = story_of(incident)
        assert story.rank == shown
        assert shown is None or re.search(rf"\brank {shown}\b", story.headline)
        (run,) = (run for run in snapshot.runs if run.name == incident.run)
        assert run.failed_rank == rank
        assert shown is None or f"rank {shown}" in incident.title
        assert shown is None or any(f"rank {shown}" in reason.text for reason in run.reasons)


def rows(first: dict[int, int], steps: int = 60, ranks: int = 2) -> Iterator[tuple[float, Sample]]:
    """Rows of each rank, one step a second; `first`: the first step with NaN, by rank."""
    for step in range(1, steps):
        for rank in range(ranks):
            loss = math.nan if step >= first.get(rank, steps) else 1.0 / step
            place = Position(f"health_rank{rank}.jsonl", step, 100 * step)
            at = START + step + rank / 100
            values = {"loss": loss}
            yield at, Sample(
                run="r", rank=rank, step=step, time=at, values=values,
                position=place,
            )  # fmt: skip


def incident_of(first: dict[int, int], ranks: int = 2) -> IncidentView:
    monitor = Monitor()
    for at, row in rows(first, ranks=ranks):
        monitor.observe([row], at)
    monitor.tick(START + 62.0)
    (incident,) = monitor.snapshot().incidents
    return incident


@pytest.mark.parametrize(("ranks", "later"), [(2, 1), (2, 5), (8, 1)])
def test_the_rank_whose_numbers_were_first_not_finite_is_named(ranks: int, later: int) -> None:
    """A reduction passes the numbers on to all ranks in the step after."""
    first = dict.fromkeys(range(ranks), 40 + later) | {1: 40}
    incident = incident_of(first, ranks)
    assert (incident.root.rank, incident.confidence) == (1, "confirmed")
    assert incident.root.why[0].startswith("rank 1 logged it at step 40, ")


def test_numbers_that_are_not_finite_at_one_step_on_all_ranks_are_a_fault_of_none() -> None:
    incident = incident_of({0: 40, 1: 40})
    assert incident.root.rank is None
    assert "a fault of program, data or configuration" in incident.root.why[0]


def nonfinite(rank: int, step: int, quantity: str) -> Event:
    """The event that the callback of a rank writes."""
    return Event(
        kind="nonfinite_metric", severity="error", run="r", rank=rank, time=START + step,
        message=f"{quantity} is NaN at step {step} on rank {rank}",
        fields={"quantity": quantity, "step": step, "family": "numerics", "role": "root"},
        position=Position(f"health_rank{rank}.jsonl", 100 + step, 10_000 * step + len(quantity)),
    )  # fmt: skip


def numbers_of(*seen: tuple[int, int, str]) -> IncidentView:
    monitor = Monitor()
    for at, row in rows({}, steps=40):
        monitor.observe([row], at)
    for rank, step, quantity in seen:
        monitor.observe([nonfinite(rank, step, quantity)], START + step)
    monitor.tick(START + 62.0)
    (incident,) = monitor.snapshot().incidents
    return incident


def test_a_gradient_that_ranks_share_does_not_hide_whose_loss_was_first() -> None:
    """DDP averages the gradients of the step in which one rank's loss is no number."""
    shared = [(0, 40, "grad_norm"), (1, 40, "loss"), (1, 40, "grad_norm")]
    incident = numbers_of(*shared, (0, 41, "loss"), (1, 41, "loss"))
    assert (incident.root.rank, incident.confidence) == (1, "confirmed")
    assert incident.root.message == "loss is NaN at step 40 on rank 1"


def test_a_loss_that_one_rank_alone_logs_does_not_accuse_it() -> None:
    """In a pipeline the last stage alone has a loss; the numbers may begin in any stage."""
    incident = numbers_of((0, 40, "grad_norm"), (1, 40, "loss"), (1, 40, "grad_norm"))
    assert incident.root.rank is None


def test_numbers_that_are_not_finite_at_step_0_are_earlier_than_later_ones() -> None:
    first = [(1, 0, "loss"), (0, 1, "loss"), (1, 1, "loss"), (1, 2, "loss")]
    assert numbers_of(*first).root.rank == 1
