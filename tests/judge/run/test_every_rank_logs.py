"""What every rank logs counts once, and what a clock of its own says counts within bounds."""

import pytest

from ldlm_monitor.base.goodput import Goodput
from ldlm_monitor.base.records import Position, Sample
from ldlm_monitor.base.snapshot import RunView
from ldlm_monitor.judge.core.monitor import Monitor
from tests.judge.incidents.cascades import START, Line, played, trained

STEP_SECONDS = 10.0


def skipped(step: int, node: int) -> list[Line]:
    texts = (
        f"ERROR: Invalid gradient norm at step {step}",
        "  Gradient norm: NaN",
        "  Skipping optimizer step and resetting gradients...",
    )
    return [(float(step), f"node{node}.log", text) for text in texts]


def run_of(lines: list[Line]) -> RunView:
    (run,) = played(lines).snapshot().runs
    return run


def test_a_skipped_step_that_every_rank_logs_counts_once() -> None:
    lines = [line for step in (61, 62) for node in range(4) for line in skipped(step, node)]
    assert run_of(trained(60) + lines).skipped_steps == 2


def account(last_off: float) -> Goodput:
    """The account of a run whose last row has a time that many seconds after its arrival."""
    monitor = Monitor()
    for step in range(11):
        now = START + step * STEP_SECONDS
        own = now + (last_off if step == 10 else 0.0)
        row = Position("training_log.jsonl", step + 1, step * 40)
        sample = Sample(run="r", step=step, values={"loss": 2.5}, time=own, position=row)
        monitor.observe([sample], now)
    (run,) = monitor.snapshot().runs
    assert run.goodput is not None
    return run.goodput


@pytest.mark.parametrize(("off", "counts"), [(9.0, 9.0), (11.0, 0.0)])
def test_a_rows_own_time_counts_only_within_ten_seconds_of_its_arrival(
    off: float, counts: float
) -> None:
    spent = account(off).total_seconds - account(0.0).total_seconds
    assert spent == pytest.approx(counts)
