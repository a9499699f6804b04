"""What heartbeats and headers of ranks add to a run, and how its files go on."""

import pytest

from ldlm_monitor.base.records import Event, Heartbeat, Position, Sample, TimedRows
from ldlm_monitor.judge.run.fleet import Fleet
from ldlm_monitor.judge.run.progress import Progress
from ldlm_monitor.judge.run.stall import Stall
from ldlm_monitor.judge.run.training_run import TrainingRun


def a_run() -> TrainingRun:
    return TrainingRun("r", 0.0, Stall(), Position("health_rank0.jsonl", 1, 0))


def beat(rank: int, step: int, at: float, phase: str = "train") -> Heartbeat:
    place = Position(f"health_rank{rank}.jsonl", step + 1, 0)
    return Heartbeat(
        run="r", rank=rank, host="gpu01", pid=70 + rank, step=step, phase=phase, time=at,
        position=place,
    )  # fmt: skip


def step(number: int, path: str = "health_rank0.jsonl", rank: int | None = 0) -> Sample:
    place = Position(path, number + 1, 0)
    return Sample(run="r", rank=rank, step=number, values={"loss": 1.0}, position=place)


def observe(run: TrainingRun, item: object, at: float) -> object:
    return run.observe([TimedRows(item, (at,))], at)  # type: ignore[arg-type]


def exported(run: TrainingRun, name: str, at: float = 100.0) -> dict[str, float]:
    points = run.progress.points("r", None, at, is_logged=False, hangs=False)
    return {dict(each.labels).get("rank", ""): each.value for each in points if each.name == name}


def test_a_heartbeat_is_a_step_of_its_rank_and_names_its_process() -> None:
    run = a_run()
    for rank in (0, 1):
        observe(run, beat(rank, 41 - rank, 10.0, phase="eval"), 10.0)
    assert run.life.can_stall
    assert run.findings.pids == {0: ("gpu01", 70), 1: ("gpu01", 71)}
    assert exported(run, "ldlm_train_step").items() >= {"0": 41, "1": 40}.items()


def test_a_stalled_run_recovers_by_a_heartbeat_with_a_new_step() -> None:
    run = a_run()
    for number in range(50):
        observe(run, step(number), float(number))
    run.tick(3000.0)
    assert run.life.state == "stalled"
    observe(run, beat(0, 49, 3001.0), 3001.0)
    assert run.life.state == "stalled", "it is no new step"
    observe(run, beat(0, 50, 3002.0), 3002.0)
    assert run.life.state != "stalled"


def header(rank: int, **mesh: object) -> Event:
    return Event(
        kind="config", severity="info", run="r", rank=rank, message="config",
        fields={"host": "gpu01", "pid": 9, "mesh": mesh}, position=Position("h.jsonl", 1, 0),
    )  # fmt: skip


def test_the_place_of_a_rank_in_the_mesh_is_exported_without_what_cannot_be_one() -> None:
    progress = a_run().progress
    progress.observe_mesh(
        3, {"dp": 1, "pp": -1, "tp": 65536, "cp": True, "ep": "x", "n" * 40: 2, "z": 0}
    )
    assert progress.meshes == {3: {"dp": 1, "n" * 16: 2, "z": 0}}
    progress.observe_mesh(3, {"dp": 65535, **{f"d{number}": 1 for number in range(20)}})
    assert len(progress.meshes[3]) == 8
    points = progress.points("r", None, 1.0, is_logged=False, hangs=False)
    (info,) = (each for each in points if each.name == "ldlm_run_mesh_info")
    assert (dict(info.labels), info.value) == ({"run": "r", "rank": "3", "dp": "65535"}, 1)


def test_a_checkpoint_counts_once_a_step_and_those_after_a_resume_are_gone() -> None:
    run = a_run()
    progress: Progress = run.progress
    progress.save_checkpoint("early.pt")
    assert (progress.saved, progress.saved_to) == (0, "early.pt")
    for number, saved in ((10, 1), (20, 2), (20, 2)):
        observe(run, step(number), float(number))
        progress.save_checkpoint(f"step_{number}.pt")
        assert progress.saved == saved
    progress.save_checkpoint()
    assert (list(progress.checkpoints), progress.saved_to) == ([10, 20], "step_20.pt")
    observe(run, step(15), 30.0)
    progress.save_checkpoint()
    assert list(progress.checkpoints) == [10, 15]


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_log_that_was_renamed_goes_on_in_its_new_file(goes_on: bool) -> None:
    fleet = Fleet(Stall(), end_after=900.0)
    for number in range(60):
        sample, at = step(number, "train.log.1", None), float(number)
        fleet.of(sample, at).observe([TimedRows(sample, (at,))], at)
    if goes_on:
        fleet.continue_file("r", "train.log.1", "train.log")
    fleet.continue_file("unknown", "a", "b")
    fleet.continue_file("r", "", "train.log")
    run = fleet.get("r")
    assert run is not None
    assert {path for path, _ in run.life.steps.last} == {"train.log" if goes_on else "train.log.1"}
    assert [fleet.verdict(name) for name in ("r", "unknown")] == [None, None]
