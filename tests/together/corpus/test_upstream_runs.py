"""MM-LDLM's own runs, replayed: the right alert, at the line where it happens, and no other."""

import os
import shutil
from pathlib import Path

import pytest

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings

RUNS = Path(__file__).parent / "runs/upstream"

ON_THE_GRID = -1
"""The line is that at which the next slot of the grid falls: when the log was copied decides."""
FINISHED = ("RunFinished", "firing", None)
EXPECTED = {
    "A_healthy_1proc": [FINISHED],
    "B_healthy_2proc": [FINISHED],
    "A4_truncated_Loss_value": [("JobKilled", "firing", 145)],
    "G_resume_same_name": [FINISHED],
    "C1_nan_latent_stable": [("NonFiniteLoss", "firing", 96), ("TrainingCrashed", "firing", 99)],
    "C2_nan_blocks_prefix_trainer": [("NonFiniteLoss", "firing", 98), FINISHED],
    "D3_gradnorm_inf_lossscale": [
        ("NonFiniteGradient", "firing", 98),
        ("StepsSkipped", "firing", ON_THE_GRID),
        FINISHED,
    ],
    "E_crash_index_error_rank": [("TrainingCrashed", "firing", 178)],
    "F1_sigkill_rank1": [("TrainingCrashed", "firing", 204)],
    "H_hang_sigstop_rank1_90s": [
        ("TrainingStalled", "firing", 229),
        ("TrainingStalled", "resolved", 229),
        FINISHED,
    ],
}


def summary(transition: Transition) -> tuple[str, str, int | None]:
    """Alert, state and line."""
    line = transition.position and transition.position.line
    graded = transition.alert == "StepsSkipped"
    return transition.alert, transition.state, ON_THE_GRID if graded else line


def replayed(run: str, **more: bool) -> list[Transition]:
    (log,) = (RUNS / run / "train_logs").glob("*.log")
    played = Replay(Settings(files=(str(log),), **more)).transitions()
    return [each for each in played if each.state != "pending" and not each.is_heartbeat]


@pytest.mark.parametrize("run", EXPECTED)
def test_with_its_companions_each_run_raises_what_a_careful_reader_would(run: str) -> None:
    assert [summary(each) for each in replayed(run)] == EXPECTED[run]


@pytest.mark.parametrize("run", sorted(EXPECTED.keys() - {"H_hang_sigstop_rank1_90s"}))
def test_the_log_alone_has_the_same_alerts(run: str) -> None:
    assert [summary(each) for each in replayed(run, companions=False)] == EXPECTED[run]


@pytest.mark.parametrize("tenths", [0, 18, 19, 35])
def test_where_the_grid_falls_between_records_changes_no_alert(tmp_path: Path, tenths: int) -> None:
    """A log without times ends at its last write, which decides where slots of the grid fall.

    At 18 and 19 one falls between the first two norms: their count and its excuse differ by one.
    """
    run = "D3_gradnorm_inf_lossscale"
    (log,) = (RUNS / run / "train_logs").glob("*.log")
    copy = tmp_path / log.name
    shutil.copyfile(log, copy)
    os.utime(copy, (1_795_497_680 + tenths / 10,) * 2)
    played = Replay(Settings(files=(str(copy),), companions=False)).transitions()
    fired = [each for each in played if each.state != "pending" and not each.is_heartbeat]
    assert [summary(each) for each in fired] == EXPECTED[run]


@pytest.mark.parametrize("run", ["E_crash_index_error_rank", "F1_sigkill_rank1"])
def test_a_crash_names_the_rank_that_failed_first(run: str) -> None:
    (crash,) = replayed(run)
    assert crash.labels["rank"] == "1"
    assert "rank 1" in crash.annotations["summary"]


def test_a_hang_is_reported_while_it_lasts() -> None:
    fired, resolved, _ = replayed("H_hang_sigstop_rank1_90s")
    assert fired.time is not None
    assert resolved.time is not None
    # Rank 1 was stopped for 90.4 s; the limit of this run is the floor of 30 s.
    assert 55 <= resolved.time - fired.time <= 62
    assert fired.active_at == pytest.approx(fired.time)


def test_the_line_itself_travels_with_the_alert() -> None:
    nan, crash = replayed("C1_nan_latent_stable")
    assert nan.line == "WARNING: Invalid text_loss detected: nan"
    assert crash.line is not None
    assert crash.line.startswith("RuntimeError: element 0 of tensors does not require grad")
    assert nan.position is not None
    assert nan.position.offset == 7135


@pytest.mark.parametrize(
    ("run", "kind", "rank", "state"),
    [
        ("A_healthy_1proc", None, None, ""),
        ("B_healthy_2proc", None, None, ""),
        ("G_resume_same_name", None, None, ""),
        ("C1_nan_latent_stable", "nonfinite_metric", 0, "ended"),
        ("C2_nan_blocks_prefix_trainer", "nonfinite_metric", None, "ended"),
        ("E_crash_index_error_rank", "python_exception", 1, "ended"),
        ("F1_sigkill_rank1", "elastic_worker_failed", 1, "ended"),
        ("H_hang_sigstop_rank1_90s", "hang_no_progress", None, "recovered"),
    ],
)
def test_a_failure_is_one_incident_and_health_is_none(
    run: str, kind: str | None, rank: int | None, state: str
) -> None:
    logs = sorted((RUNS / run / "train_logs").glob("*.log"))
    played = Replay(Settings(files=tuple(map(str, logs)), companions=False))
    list(played.transitions())
    found = played.snapshot().incidents
    if kind is None:
        assert found == ()
        return
    (incident,) = found
    assert (incident.root.kind, incident.root.rank, incident.state) == (kind, rank, state)


@pytest.mark.parametrize("are_named", [True, False], ids=["named together", "found beside it"])
@pytest.mark.parametrize("run", sorted(EXPECTED.keys() - {"A4_truncated_Loss_value"}))
def test_rows_with_the_losses_of_the_log_are_of_its_run_wherever_they_lie(
    run: str, are_named: bool, tmp_path: Path
) -> None:
    """Rows without times; A4's log has a single loss."""
    (log,) = (RUNS / run / "train_logs").glob("*.log")
    (rows,) = (RUNS / run / "saved").rglob("training_log.jsonl")
    place = "elsewhere/of/it" if are_named else "saved"
    files = [tmp_path / "train_logs" / log.name, tmp_path / place / rows.name]
    for source, file in zip((log, rows), files, strict=True):
        file.parent.mkdir(parents=True)
        shutil.copyfile(source, file)
    replay = Replay(Settings(files=tuple(map(str, files if are_named else files[:1]))))
    list(replay.transitions())
    (found,) = replay.snapshot().runs
    assert {Path(name).name for name in found.files} == {log.name, rows.name}
