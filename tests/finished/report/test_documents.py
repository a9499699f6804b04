"""The reports of made snapshots, as they were read and approved."""

import math
import re
from collections.abc import Callable, Iterator

import pytest

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.goodput import Goodput
from ldlm_monitor.base.incident_view import (
    ClaimView,
    CollectiveView,
    DecisionView,
    ExcerptView,
    IncidentView,
    SymptomView,
)
from ldlm_monitor.base.points import Point, make_labels
from ldlm_monitor.base.records import Event, Position
from ldlm_monitor.base.snapshot import (
    AlertView,
    CurveView,
    NonfiniteView,
    ReasonView,
    RunView,
    Snapshot,
    Statistics,
    VerdictView,
)
from ldlm_monitor.finished.report.document import report
from ldlm_monitor.finished.report.html import page
from ldlm_monitor.finished.report.plain_text import health_report, markdown
from tests.finished.approved import approve
from tests.finished.report.conftest import NOW

BROKEN, SECOND, SLOW, DONE = "broken", "second try", "slow", "done"
LOG = "logs/broken_node0.log"


def at(line: int) -> Position:
    return Position(LOG, line, 80 * line)


def curve(*means: float, steps: tuple[int, ...] | None = None) -> CurveView:
    numbers = range(len(means))
    return CurveView(
        steps=steps or tuple(10 * n for n in numbers),
        times=[NOW + n for n in numbers],
        lows=[mean - 0.5 for mean in means],
        highs=[mean + 0.25 for mean in means],
        means=means,
        nonfinite=[int(math.isnan(mean)) for mean in means],
        lines=[n + 1 for n in numbers],
        offsets=[80 * n for n in numbers],
        origins=[0 for _ in numbers],
        files=(LOG,),
    )


CURVES = {
    "loss": curve(4.0, 3.5, 3.0, math.nan, 2.75, 2.5, steps=(0, 10, 20, 30, 20, 30)),
    "eval_loss": curve(4.5, 3.25),
    "loss_text": curve(1.0, 0.5, 0.25),
    "loss_image": curve(3.0, 2.5, 2.0),
    "grad_norm": curve(0.001, 1.0, 250.0),
    "memory_allocated_bytes": curve(2.0**34, 2.0**35),
    "tokens_per_second": curve(1.5e6, 1.25e6, 1.75e6),
    "accuracy": curve(0.5),
}


def symptoms() -> Iterator[SymptomView]:
    kinds = (
        ("nccl_timeout", 3, "0-2"), ("nccl_timeout", 1, "4"), ("sigterm", 7, ""), ("a", 1, "5"),
        ("b", 1, "6"), ("c", 1, "7"), ("d", 1, "8"), ("e", 1, "9"), ("f", 1, "10"),
    )  # fmt: skip
    for kind, count, ranks in kinds:
        yield SymptomView(
            kind=kind, role="symptom", count=count, ranks=ranks, message="m", position=at(9)
        )


@pytest.fixture(scope="module")
def incident(make_incident: Callable[..., IncidentView]) -> IncidentView:
    decision = DecisionView(
        decision="RESTART_WITHOUT",
        confidence="probable",
        reasons=("the driver reports a fault of the GPU", "no other rank did"),
        node="gpu01",
        rule="gpu",
        if_wrong="a node less",
    )
    return make_incident(
        run=BROKEN,
        title="GPU of rank 3 fell off the bus",
        collective=CollectiveView(
            op="ALLREDUCE", seq=77, group="default", timeout_seconds=600.0, began_at=NOW - 600,
            waiting="0-2,4-7", missing="3",
        ),
        symptoms=tuple(symptoms()),
        events=17,
        claims=(
            ClaimView(
                rank=0, exitcode=1, host="gpu01", agrees=False, reason="died first", position=at(8)
            ),
            ClaimView(rank=3, exitcode=1, host=None, agrees=True, reason="yes", position=at(8)),
        ),
        excerpt=(
            ExcerptView(rank=3, text="NVRM: Xid 79, GPU has fallen off the bus", position=at(5)),
            ExcerptView(rank=None, text="Watchdog caught a <timeout> & died", position=at(9)),
        ),
        action="Replace the GPU, and look at the riser card.",
        decision=decision,
        lost_seconds=300.0,
        last_step=30,
        alerts=("GpuLost",),
    )  # fmt: skip


@pytest.fixture(scope="module")
def broken(make_run: Callable[..., RunView], make_statistics: Callable[..., Statistics]) -> RunView:
    lost = {"restart": (100.0, 1), "stall": (300.0, 2), "checkpoint": (50.0, 3)}
    spent = Goodput.of(550.0, lost, 0.5, 5.0, 2)
    assert spent is not None
    return make_run(
        name=BROKEN,
        health="CRITICAL",
        state="crashed",
        world_size=8,
        ended_at=NOW - 5,
        failed_rank=3,
        skipped_steps=2,
        resumed_at=(20,),
        files=(LOG, "logs/broken_node1.log"),
        reasons=(
            ReasonView(kind="incident", severity="critical", text="a GPU is lost", since=NOW),
            ReasonView(kind="alert", severity="warning", text="it was slow", since=None),
        ),
        statistics={
            "loss": make_statistics(math.nan, mean=2.5, minimum=2.0, maximum=4.0, nonfinite=3),
            "zeta": make_statistics(1.5, mean=None, minimum=None, maximum=None),
            "memory_allocated_bytes": make_statistics(2.0**35),
            "step_seconds": make_statistics(0.5, mean=0.625),
            "tokens_per_second": make_statistics(1.25e6),
            "samples_per_second": make_statistics(16.0),
        },
        event_counts={"nccl_timeout": 4, "sigterm": 7, "gpu_xid": 1},
        settings={"learning_rate": "3e-4", "hf_token": "abc", "precision": "bf16"},
        nonfinite=(NonfiniteView(step=30, quantity="loss", rank=3),),
        verdict=VerdictView(word="crashed", reasons=("exit code 1", "no process is left")),
        goodput=spent.model_copy(update={"gpu_hours": 80.0}),
    )


@pytest.fixture(scope="module")
def several(  # noqa: PLR0917
    broken: RunView,
    incident: IncidentView,
    make_run: Callable[..., RunView],
    make_alert: Callable[..., AlertView],
    make_event: Callable[..., Event],
    make_snapshot: Callable[..., Snapshot],
) -> Snapshot:
    recovered = incident.model_copy(
        update={
            "id": "0", "state": "recovered", "ended_reason": "restarted", "ended_at": NOW - 400,
            "opened_at": NOW - 500, "title": "A link was lost", "confidence": "none",
            "symptoms": (), "events": 0, "claims": (), "excerpt": (), "decision": None,
            "collective": None, "lost_seconds": None, "last_step": 10,
            "root": incident.root.model_copy(update={"at": NOW - 500, "why": ()}),
        }
    )  # fmt: skip
    labels = {"severity": "critical", "run": BROKEN}
    transition = Transition(
        time=NOW - 20, alert="GpuLost", state="firing", previous="pending", reason="",
        labels=labels, annotations={"summary": "broken: a GPU is lost"}, value=1.0,
        active_at=NOW - 20,
    )  # fmt: skip
    pending = Transition(
        time=NOW - 25, alert="GpuLost", state="pending", previous="inactive", reason="",
        labels=labels, value=1.0, active_at=NOW - 25,
    )  # fmt: skip
    resolved = Transition(
        time=None, alert="Slow", state="resolved", previous="firing", reason="",
        labels={"severity": "none", "run": BROKEN}, value=0.0, active_at=NOW - 90,
    )  # fmt: skip
    snapshot = make_snapshot(
        broken,
        make_run(name=SECOND, step=None, total_steps=None, progress=None, state="starting"),
        make_run(
            name=SLOW,
            health="WARNING",
            total_steps=None,
            progress=None,
            reasons=(ReasonView(kind="alert", severity="warning", text="slow", since=None),),
        ),
        make_run(name=DONE, state="finished", step=1000, progress=1.0, ended_at=NOW - 1),
        alerts=(
            make_alert(
                "NonFiniteLoss",
                labels={**labels, "rank": "3"},
                annotations={"summary": "broken: loss is NaN", "action": "Lower it."},
                position=at(7),
            ),
            make_alert(
                "Slow",
                "warning",
                labels={"severity": "warning", "run": SLOW},
                position=Position(f"logs/{'deep/' * 20}slow.log", 3, 9),
            ),
            make_alert("QueueFull", labels={"severity": "error"}, position=None),
            make_alert("Soon", state="pending", labels=labels),
        ),
        events=(
            make_event("gpu_xid", run=BROKEN, rank=3, fields={"role": "root"}, message="Xid 79"),
            make_event("nccl_timeout", run=BROKEN, rank=0, message="x" * 500),
            make_event("nccl_timeout", run=BROKEN, rank=0, message="again"),
            make_event("nccl_timeout", run=BROKEN, rank=1, message="again", severity="critical"),
            make_event("run_start", run=BROKEN, severity="info", message="begins", time=None),
            make_event("slurm_requeue", run=BROKEN, severity="info", message="anew"),
        ),
        points=(Point("ldlm_train_step_seconds", make_labels(run=SLOW), 2.25),),
    )
    return snapshot.model_copy(
        update={
            "incidents": (recovered, incident),
            "transitions": (pending, transition, resolved),
            "curves": {BROKEN: CURVES},
            "monitor": snapshot.monitor.model_copy(update={"unread": 12}),
        }
    )


@pytest.fixture(scope="module")
def alone(several: Snapshot) -> Snapshot:
    return several.model_copy(update={"runs": several.runs[:1]})


def bare_page(snapshot: Snapshot, price: float | None) -> str:
    """The page without style and script, which are files of their own, an element a line."""
    text = re.sub(r"(?s)<(style|script)\b.*?</\1>", "", page(report(snapshot, price)))
    return text.replace("><", ">\n<") + "\n"


def test_the_report_of_several_runs_is_brief(several: Snapshot) -> None:
    approve("runs.txt", health_report(several, 2.5, ends=True))
    approve("runs.md", markdown(report(several, 2.5, ends=True)))


def test_the_report_of_one_run_has_everything(alone: Snapshot) -> None:
    approve("run.txt", health_report(alone, 2.5))
    approve("run.md", markdown(report(alone, 2.5)))


def test_without_a_price_nothing_is_said_of_money(alone: Snapshot) -> None:
    approve("run_without_price.txt", health_report(alone))


def test_a_page_has_the_runs_below_each_other(several: Snapshot) -> None:
    approve("runs.html", bare_page(several, 2.5))


def test_the_page_of_one_run_has_its_charts_and_all_sections_open(alone: Snapshot) -> None:
    approve("run.html", bare_page(alone, None))
