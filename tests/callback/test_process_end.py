"""How a process ends is in its file, and it ends as it would alone."""

import os
import signal

import pytest

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
