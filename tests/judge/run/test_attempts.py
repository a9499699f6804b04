"""Several launches in one log: causes, steps and ends belong to the attempt in which they lie."""

from pathlib import Path

import pytest

from ldlm_monitor.base.names import RESTARTS
from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings

BANNER = "*** Starting MMDiT with Joint Text-Latent Diffusion ***\n"
CRASH = (
    'Traceback (most recent call last):\n  File "/home/u/train.py", line 12, in <module>\n'
    "    main()\nValueError: bad batch\n"
)
AGENT = "I1121 06:32:06.769000 14784 torch/distributed/elastic/agent/server/api.py:"
RANKS = f"{AGENT}553]   global_ranks=[0, 1]\n"
FAILED = (
    f"{AGENT}901] [default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
)


def restarted(count: int) -> str:
    return f"{AGENT}553]   restart_count={count}\n{RANKS}"


def steps(first: int, last: int) -> str:
    return "".join(
        f"step {step} loss {4 - step / 1e5:.5f} lr 3e-4\n" for step in range(first, last)
    )


def epochs(first: int, last: int) -> str:
    return "".join(
        f"{{'epoch': {epoch}, 'step': {step}, 'loss': {2 - epoch / 100 - step / 1e4:.4f}}}\n"
        for epoch in range(first, last)
        for step in range(0, 50, 10)
    )


def judged(path: Path, text: str) -> Snapshot:
    path.write_text(text)
    replay = Replay(Settings(files=(str(path),), companions=False))
    for _ in replay.transitions():
        pass
    return replay.snapshot()


def found(snapshot: Snapshot) -> list[tuple[int, int | None, str]]:
    return [(each.attempt, each.last_step, each.ended_reason) for each in snapshot.incidents]


def test_failed_starts_before_a_good_launch_are_past_incidents(tmp_path: Path) -> None:
    snapshot = judged(tmp_path / "a.log", 5 * (BANNER + CRASH) + BANNER + steps(0, 500))
    assert [run.state for run in snapshot.runs] == ["running"]
    assert found(snapshot) == [(attempt, None, "restarted") for attempt in range(1, 6)]
    assert "TrainingCrashed" not in {alert.name for alert in snapshot.alerts}


def test_a_crash_before_any_step_has_no_step_of_an_earlier_attempt(tmp_path: Path) -> None:
    text = BANNER + steps(4900, 4980) + CRASH + BANNER + CRASH
    snapshot = judged(tmp_path / "a.log", text)
    assert found(snapshot) == [(1, 4979, "restarted"), (2, None, "run ended")]
    assert "step" not in snapshot.incidents[1].title


def test_a_step_that_falls_back_after_a_traceback_begins_an_attempt(tmp_path: Path) -> None:
    snapshot = judged(tmp_path / "a.log", steps(0, 60) + CRASH + steps(0, 30) + CRASH)
    assert found(snapshot) == [(1, 59, "restarted"), (2, 29, "run ended")]


@pytest.mark.parametrize("again", ["", "Loading checkpoint from /ckpt/300\n"], ids=["", "loads"])
def test_an_epoch_that_falls_back_begins_one_where_no_line_has_a_step(
    tmp_path: Path, again: str
) -> None:
    """The second crash is what is now: neither lines nor rows have a time."""
    other = CRASH.replace("bad batch", "bad label")
    text = parts(0, 60) + CRASH + again + parts(30, 55) + other
    snapshot = judged(tmp_path / "a.log", text)
    assert found(snapshot) == [(1, None, "restarted"), (2, None, "run ended")]
    (run,) = snapshot.runs
    assert run.decision is not None
    assert "ValueError: bad label" in run.decision.reasons
    (alert,) = [alert for alert in snapshot.alerts if alert.name == "TrainingCrashed"]
    assert alert.position is not None
    assert alert.position.line >= 90


def parts(first: int, last: int) -> str:
    return "".join(
        f"{{'loss': {3 - part / 100:.4f}, 'grad_norm': 1.0, 'epoch': {part / 100}}}\n"
        for part in range(first, last)
    )


def test_a_step_that_falls_back_in_each_epoch_begins_none(tmp_path: Path) -> None:
    """The step says little then, so the epoch is named."""
    text = epochs(0, 5) + CRASH + epochs(5, 101) + CRASH
    snapshot = judged(tmp_path / "a.log", text)
    last = snapshot.incidents[-1]
    assert (last.attempt, last.last_step) == (1, None)
    assert last.title.endswith("in epoch 100")


@pytest.mark.parametrize("count", [1, 2])
def test_a_launchers_restart_is_an_attempt(tmp_path: Path, count: int) -> None:
    tries = "".join(CRASH + FAILED + restarted(each) for each in range(1, count + 1))
    snapshot = judged(tmp_path / "a.log", RANKS + steps(0, 9) + tries + steps(0, 5) + CRASH)
    assert [each.attempt for each in snapshot.incidents] == list(range(1, count + 2))
    assert snapshot.incidents[-1].last_step == 4


def test_the_restarts_of_a_second_launch_are_counted_anew(tmp_path: Path) -> None:
    """Its launcher begins to count at 0 again."""
    launch = RANKS + steps(0, 9) + CRASH + FAILED + restarted(1) + steps(0, 9) + CRASH
    snapshot = judged(tmp_path / "a.log", launch + launch)
    assert [each.attempt for each in snapshot.incidents] == [1, 2, 3, 4]


def restarts_of(snapshot: Snapshot) -> list[float]:
    return [point.value for point in snapshot.points if point.name == RESTARTS]


def test_the_line_of_a_restart_and_the_starts_of_its_ranks_are_one_restart(tmp_path: Path) -> None:
    """Older launchers print no count: one that follows includes the restart."""
    log = tmp_path / "a.log"
    uncounted = RANKS + steps(0, 9) + CRASH + FAILED + RANKS
    assert restarts_of(judged(log, uncounted)) == [1]
    assert restarts_of(judged(log, uncounted + steps(0, 9) + CRASH + FAILED + restarted(2))) == [2]


def test_a_restart_before_any_step_is_an_attempt(tmp_path: Path) -> None:
    """The launcher's line shows it, though the file has no progress."""
    assert restarts_of(judged(tmp_path / "a.log", RANKS + FAILED)) == [0]
    assert restarts_of(judged(tmp_path / "a.log", RANKS + FAILED + RANKS)) == [1]


@pytest.mark.parametrize(
    ("text", "restarts"),
    [
        (BANNER + steps(0, 20), 0),
        (BANNER + CRASH + BANNER + CRASH + BANNER, 2),
        (RANKS + steps(0, 9) + CRASH + FAILED + restarted(1) + CRASH + FAILED + restarted(2), 2),
    ],
)
def test_restarts_are_counted_from_zero(tmp_path: Path, text: str, restarts: int) -> None:
    points = judged(tmp_path / "a.log", text).points
    counted = {point.labels: point.value for point in points if point.name == RESTARTS}
    assert counted == {(("run", "a"),): restarts}


def test_a_banner_of_another_node_begins_no_attempt(tmp_path: Path) -> None:
    for node, text in enumerate((BANNER + steps(0, 20), BANNER + CRASH)):
        (tmp_path / f"train_20261121_071436_node{node}.log").write_text(text)
    replay = Replay(Settings(files=(str(tmp_path / "*.log"),), companions=False))
    for _ in replay.transitions():
        pass
    assert {each.attempt for each in replay.snapshot().incidents} == {1}


def dated(second: int, text: str) -> str:
    clock = f"2026-07-08 {3 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return "".join(f"{line}\n" if line else "" for line in text.split("\n")).replace("@", clock)


def failed_start(second: int, error: str) -> str:
    """Both ranks of a start raise the same, and their launcher reports it."""
    traceback = "".join(
        f"[rank{rank}]: Traceback (most recent call last):\n"
        f'[rank{rank}]:   File "/app/train.py", line 88, in <module>\n'
        f"[rank{rank}]: {error}\n"
        for rank in range(2)
    )
    return dated(
        second,
        f"@ INFO Loading model from /out/checkpoint-300.\n{traceback}@ failed (exitcode: 1) "
        f"local_rank: 0 (pid: {400 + second}) of binary: /env/bin/python\n",
    )


KILL = (
    "slurmstepd: error: *** JOB 9 ON gpu07 CANCELLED AT 2026-07-08T03:05:04 DUE TO PREEMPTION ***"
)
CUT = "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer"


def after_steps(*later: str) -> str:
    taken = "".join(dated(second, f"@ step {second} loss 2.5\n") for second in range(1, 300))
    return taken + "".join(later)


@pytest.mark.parametrize("end", [KILL + "\n", ""], ids=["after a kill", "after nothing"])
@pytest.mark.parametrize("starts", [1, 2, 5])
def test_each_start_that_fails_before_a_step_is_an_attempt(
    end: str, starts: int, tmp_path: Path
) -> None:
    """What ends the training before them does not matter."""
    fails = [failed_start(720 + 430 * each, CUT) for each in range(starts)]
    snapshot = judged(tmp_path / "a.log", after_steps(end, *fails))
    (run,) = snapshot.runs
    assert run.state == "crashed"
    assert run.attempt == starts + bool(end)
    firing = {alert.name for alert in snapshot.alerts if alert.state == "firing"}
    assert "TrainingCrashed" in firing
    # Without another end, the first of them ends the attempt that took steps.
    assert ("RestartStorm" in firing) == (starts - (not end) >= 3)
    assert run.decision is not None
    assert run.decision.decision == "STOP"


OURS = "2026-11-18T11:{0:02}:{1:02}.100Z ldlm-monitor run: "


def our_start(minute: int, *, error: str, end: str) -> str:
    """An attempt of `ldlm-monitor run` that ends within four seconds."""
    begin, over = OURS.format(minute, 0), OURS.format(minute, 4)
    return f"{begin}attempt {minute + 1} starts: []\n{error}{over}the command {end}\n"


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (CRASH, "ended with exit code 1"),
        ("", "ended with exit code 1"),
        ("", "was ended by signal 9 (SIGKILL)"),
    ],
)
def test_starts_that_fail_alike_from_the_first_launch_on_are_a_storm(
    error: str, end: str, tmp_path: Path
) -> None:
    starts = "".join(our_start(each, error=error, end=end) for each in range(5))
    snapshot = judged(tmp_path / "a.log", starts)
    (storm,) = (alert for alert in snapshot.alerts if alert.name == "RestartStorm")
    assert (storm.state, storm.value) == ("firing", 5)


def test_starts_that_fail_in_different_ways_are_no_storm(tmp_path: Path) -> None:
    errors = (CUT, "KeyError: 'lr'", CUT)
    fails = [failed_start(720 + 430 * number, each) for number, each in enumerate(errors)]
    snapshot = judged(tmp_path / "a.log", after_steps(KILL + "\n", *fails))
    assert "RestartStorm" not in {alert.name for alert in snapshot.alerts}


def test_a_step_ends_the_row_of_failed_starts(tmp_path: Path) -> None:
    fails = [failed_start(720 + 430 * each, CUT) for each in range(2)]
    goes_on = "".join(dated(2000 + step, f"@ step {step} loss 2.5\n") for step in range(300, 320))
    snapshot = judged(tmp_path / "a.log", after_steps(KILL + "\n", *fails, goes_on))
    (run,) = snapshot.runs
    assert (run.state, run.step) == ("running", 319)
    assert "RestartStorm" not in {alert.name for alert in snapshot.alerts}


def test_ranks_that_report_a_failure_late_are_of_the_same_attempt(tmp_path: Path) -> None:
    """The watchdogs of the others end ten minutes after the first."""
    rank = "[rank{0}]: Traceback (most recent call last):\n[rank{0}]: ValueError: bad batch {0}\n"
    late = dated(900, f"@ INFO waited\n{rank.format(1)}")
    snapshot = judged(tmp_path / "a.log", after_steps(dated(301, rank.format(0)), late))
    assert [run.attempt for run in snapshot.runs] == [1]


def test_restarts_are_one_number(tmp_path: Path) -> None:
    fails = [failed_start(720 + 430 * each, CUT) for each in range(3)]
    snapshot = judged(tmp_path / "a.log", after_steps(KILL + "\n", *fails))
    (run,) = snapshot.runs
    exported = {point.name: point.value for point in snapshot.points if point.name == RESTARTS}
    assert run.goodput is not None
    assert (exported[RESTARTS], run.attempt, run.goodput.failures) == (3, 4, 4)


NOHUP = "nohup: 忽略输入\n"  # in the language of the machine
DATED_CRASH = "2026-07-08 03:{0:02}:00,000 __main__ ERROR " + CRASH
SCRIPT = "2026-07-08 03:{0:02}:00,000 __main__ INFO {1} train.py\n"


def test_each_start_under_nohup_is_an_attempt_and_the_last_one_is_now(tmp_path: Path) -> None:
    snapshot = judged(
        tmp_path / "a.log", NOHUP + CRASH + NOHUP + steps(0, 90) + CRASH + NOHUP + steps(0, 90)
    )
    assert found(snapshot) == [(1, None, "restarted"), (2, 89, "restarted")]
    (run,) = snapshot.runs
    assert (run.state, run.attempt) == ("running", 3)
    assert run.decision is None or run.decision.decision == "GO_ON"


def test_a_script_that_reaches_its_end_after_failed_starts_is_finished(tmp_path: Path) -> None:
    """A person's starts are no restarts, so that no storm of them is reported."""
    text = "".join(
        SCRIPT.format(3 * each, "START") + DATED_CRASH.format(3 * each + 1) for each in range(8)
    )
    ends = SCRIPT.format(40, "START") + SCRIPT.format(50, "END")
    snapshot = judged(tmp_path / "a.log", text + 3 * ends)
    (run,) = snapshot.runs
    assert (run.state, run.attempt) == ("finished", 11)
    assert restarts_of(snapshot) == [0]
    assert judged(tmp_path / "b.log", text + ends + text).runs[0].state == "crashed"


def test_a_loop_that_starts_its_command_again_at_once_restarts_it(tmp_path: Path) -> None:
    dated = "2026-07-08 03:0{0}:{1:02} step {2} loss 2.5\n"
    launches = [
        "".join(dated.format(each, step, step) for step in range(50))
        + DATED_CRASH.format(each).replace(":00,", ":50,")
        + SCRIPT.format(each + 1, "START")
        for each in range(8)
    ]
    assert restarts_of(judged(tmp_path / "a.log", "".join(launches))) == [8]


def test_results_end_a_training_that_follows_folds_which_were_given_up(tmp_path: Path) -> None:
    folds = "fold 1/5\n" + steps(0, 30) + "fold 2/5\n" + steps(0, 10) + "KeyboardInterrupt\n"
    last = NOHUP + steps(0, 90) + "Done!\n"
    (run,) = judged(tmp_path / "a.log", folds + last).runs
    assert run.state == "finished"


def test_an_error_whose_traceback_the_next_start_ends_is_over_with_its_attempt(
    tmp_path: Path,
) -> None:
    dated = "2026-07-08 03:00:{0:02} step {0} loss 2.5\n"
    memory = CRASH.replace("ValueError: bad batch", "torch.OutOfMemoryError: CUDA out of memory.")
    text = "".join(map(dated.format, range(50))) + memory + NOHUP
    path = tmp_path / "a.log"
    path.write_text(text + "".join(map(dated.format, range(50, 60))))
    replay = Replay(Settings(files=(str(path),), companions=False))
    states = [each.state for each in replay.transitions() if each.alert == "OutOfMemory"]
    assert "unknown" not in states


def test_trainings_of_one_log_that_each_reach_their_end_are_no_restarts(tmp_path: Path) -> None:
    text = (steps(0, 90) + "Training complete.\n") * 7
    assert restarts_of(judged(tmp_path / "a.log", text)) == [0]


def test_a_row_of_each_epoch_makes_no_attempt_of_the_next(tmp_path: Path) -> None:
    """Steps begin again with each epoch, and a row before them has the epoch alone."""
    rows, at = [], 1_781_000_000.0
    for epoch in range(4):
        rows.append(f'{{"time": {at}, "epoch": {epoch}, "val_loss": {2 - epoch / 10}}}\n')
        for step in range(100):
            at += 1
            loss = 2 - epoch / 10 - step / 1000
            rows.append(f'{{"time": {at}, "epoch": {epoch}, "step": {step}, "loss": {loss}}}\n')
        at += 1500
    log = tmp_path / "a.jsonl"
    log.write_text("".join(rows), encoding="utf-8")
    snapshot = Replay(Settings(files=(str(log),))).end()
    (run,) = snapshot.runs
    assert run.attempt == 1
    stalls = [each for each in snapshot.transitions if each.alert == "TrainingStalled"]
    assert len([each for each in stalls if each.state == "firing"]) <= 1
