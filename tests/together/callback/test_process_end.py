"""However a training process ends or divides, its file has it and nothing else changes."""

import socket
import time

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.service.config import Settings

STEPS = """
callback = HealthCallback(out=sys.argv[1])
for step in range(50):
    callback.on_step(step, loss=1.0)
"""


@pytest.mark.parametrize(
    ("ending", "state"),
    [
        ("os.kill(os.getpid(), signal.SIGTERM)", "killed"),
        ("raise RuntimeError('CUDA error')", "crashed"),
        ("raise KeyboardInterrupt", "killed"),
        ("pass", "finished"),
    ],
)
@pytest.mark.usefixtures("monitor_reads")
def test_the_monitor_shows_how_the_run_ended(train, ending, state) -> None:

    training = train(STEPS + ending)
    training.end()
    monitor = Monitor()
    path = training.out / "health_rank0.jsonl"
    at = training.rows()[-1]["time"]
    monitor.feed(Chunk(str(path), (1, 1, 0), 0, 1, path.read_bytes()), at)
    monitor.tick(at + 15)
    (run,) = monitor.snapshot().runs
    assert run.state == state


STEPS_THEN_HANGS = (
    STEPS
    + """
path = sys.argv[1] + "/health_rank0.jsonl"
while not os.path.exists(path) or '"step":49,' not in open(path).read().replace(" ", ""):
    time.sleep(0.01)
print("there", flush=True)
time.sleep(600)
"""
)


@pytest.mark.parametrize("kept", ["heartbeat", "rows alone"])
@pytest.mark.parametrize(
    ("lives", "limit", "state"),
    [(False, 600, "ended"), (True, 600, "running"), (True, 0.001, "stalled")],
)
@pytest.mark.usefixtures("monitor_reads")
def test_a_report_looks_whether_the_process_of_a_run_is_gone(
    train, kept, lives, limit, state
) -> None:
    """A killed process leaves no word; pid and host show it, of its heartbeat or of its rows.

    Only state and age are those of now: nothing rings by a clock that the log does not have.
    """
    from ldlm_monitor.finished.playback.log_replay import Replay

    training = train(STEPS_THEN_HANGS)
    training.said("there")
    if not lives:
        training.process.kill()
        training.end()
    if kept != "heartbeat":
        (training.out / "heartbeat_rank0").unlink()
        limit = limit if lives else 0.001  # rows do not distinguish containers: only in silence
    files, limits = [str(training.out / "health_rank0.jsonl")], {"running": limit}
    replay = Replay(Settings(files=files, stall={"limit_seconds": limits}), looks=True)
    fired = {each.alert for each in replay.transitions() if each.state == "firing"}
    snapshot = replay.snapshot()
    (run,) = snapshot.runs
    assert run.state == state
    assert ("TrainingEnded" in fired) == (not lives)
    assert "TrainingStalled" not in fired
    assert snapshot.at < time.time()
    assert (run.host is not None) == lives
    if lives:
        assert run.host.at > run.last_progress_at


@pytest.mark.usefixtures("monitor_reads")
def test_rows_of_another_host_or_of_a_run_that_may_go_on_unseen_end_nothing(train) -> None:
    from ldlm_monitor.finished.playback.log_replay import Replay

    training = train(STEPS)
    training.end()
    (training.out / "heartbeat_rank0").unlink()
    path = training.out / "health_rank0.jsonl"
    rows = [line for line in path.read_text().splitlines() if '"type":"end"' not in line]
    name = socket.gethostname()
    for host, limit in ((name, 600), (f"not-{name}", 0.001)):
        path.write_text("".join(f"{line}\n".replace(f'"{name}"', f'"{host}"') for line in rows))
        limits = {"limit_seconds": {"running": limit}}
        replay = Replay(Settings(files=[str(path)], stall=limits), looks=True)
        for _ in replay.played():
            pass
        (run,) = replay.snapshot().runs
        assert (run.state, run.host) == ("running", None)
