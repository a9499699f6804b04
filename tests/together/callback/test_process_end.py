"""However a training process ends or divides, its file has it and nothing else changes."""

import os
import signal
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


def steps_of(training) -> list[int]:
    return [row["step"] for row in training.rows() if row["type"] == "step"]


@pytest.mark.parametrize("ending", ["", "callback.close()", "callback.close(); callback.close()"])
def test_a_program_that_ends_has_finished_and_lost_no_row(train, ending) -> None:
    training = train(STEPS + ending)
    assert training.end() == (0, "")
    assert steps_of(training) == list(range(50))
    assert [row["status"] for row in training.rows() if row["type"] == "end"] == ["finished"]


def test_an_exception_is_reported_and_shown_as_before(train) -> None:
    training = train(STEPS + "raise RuntimeError('CUDA error')\n")
    code, errors = training.end()
    assert code == 1
    assert errors.endswith("RuntimeError: CUDA error\n")
    last = training.rows()[-1]
    assert (last["status"], last["error"]) == ("failed", "RuntimeError: CUDA error")
    assert "Traceback (most recent call last)" in last["traceback"]
    assert steps_of(training) == list(range(50))


@pytest.mark.parametrize(
    ("statement", "status", "code"),
    [("pass", "finished", 0), ("sys.exit(0)", "finished", 0), ("sys.exit(3)", "failed", 3)],
)
def test_as_a_context_manager_it_reports_an_exit_code(train, statement, status, code) -> None:
    training = train(
        f"""
        with HealthCallback(out=sys.argv[1]) as callback:
            callback.on_step(1)
            {statement}
        """
    )
    assert training.end()[0] == code
    assert training.rows()[-1]["status"] == status


def test_sigterm_ends_the_process_as_before_and_the_file_too(train) -> None:
    training = train(
        STEPS
        + """
print("there", flush=True)
while True:
    callback.on_step(step := step + 1)
"""
    )
    training.said("there")
    training.process.terminate()
    assert training.end() == (-signal.SIGTERM, "")
    rows = training.rows()
    assert (rows[-1]["status"], rows[-1]["error"]) == ("failed", "SIGTERM")
    steps = steps_of(training)
    assert steps == list(range(steps[-1] + 1))


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


def test_sigterm_ends_a_rank_that_waits_in_c_and_never_comes_back_to_python(train) -> None:
    """As in a collective: the main thread would never call a handler of Python's."""
    training = train(
        STEPS
        + """
import ctypes
mutex = ctypes.create_string_buffer(64)
print("there", flush=True)
ctypes.CDLL(None).pthread_mutex_lock(mutex)
ctypes.CDLL(None).pthread_mutex_lock(mutex)
"""
    )
    training.said("there")
    training.process.terminate()
    assert training.end() == (-signal.SIGTERM, "")
    assert training.rows()[-1]["error"] == "SIGTERM"


def test_a_handler_that_was_there_still_decides(train) -> None:
    training = train(
        """
        def stop(number, frame):
            print("stopping", flush=True)
            raise SystemExit(0)
        signal.signal(signal.SIGTERM, stop)
        callback = HealthCallback(out=sys.argv[1])
        callback.on_step(1)
        print("there", flush=True)
        time.sleep(60)
        """
    )
    training.said("there")
    training.process.terminate()
    assert training.end()[0] == 0
    assert training.rows()[-1]["status"] == "finished"


def test_forked_workers_write_nothing_and_die_of_sigterm_as_before(train) -> None:
    training = train(
        STEPS
        + """
pids = []
for worker in range(4):
    pid = os.fork()
    if pid == 0:
        callback.on_step(1000)
        callback.event("worker")
        if worker % 2:
            sys.exit(0)
        time.sleep(60)
    pids.append(pid)
for worker, pid in enumerate(pids):
    if worker % 2 == 0:
        os.kill(pid, signal.SIGTERM)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids])
time.sleep(1.5)  # longer than a SIGTERM of ours would be waited with
callback.on_step(50)
"""
    )
    assert training.process.stdout is not None
    assert training.process.stdout.readline() == "[-15, 0, -15, 0]\n"
    assert training.end() == (0, "")
    assert steps_of(training) == list(range(51))
    kinds = [row["type"] for row in training.rows()]
    assert (kinds.count("run"), kinds.count("end"), kinds.count("event")) == (1, 1, 0)


def test_a_process_that_forks_and_terminates_at_once_lives_on(train) -> None:
    """A child that has not got so far as our hook must not seem to be us."""
    training = train(
        STEPS
        + """
for _ in range(200):
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)
time.sleep(1.5)
print("alive", flush=True)
"""
    )
    training.said("alive")
    assert training.end() == (0, "")


def test_after_close_the_process_is_as_it_was(train) -> None:
    training = train(
        """
        import threading
        before = sys.excepthook, signal.getsignal(signal.SIGTERM), threading.active_count()
        callback = HealthCallback(out=sys.argv[1])
        callback.on_step(1)
        callback.close()
        now = sys.excepthook, signal.getsignal(signal.SIGTERM), threading.active_count()
        assert now == before, (now, before)
        assert signal.set_wakeup_fd(-1) == -1
        callback.on_step(2)
        """
    )
    assert training.end() == (0, "")
    assert steps_of(training) == [1]
    assert os.path.getsize(training.out / "heartbeat_rank0") == 4096
