"""A rank that hangs shows its stacks to all who may signal it."""

import os
import signal
import time
from pathlib import Path

import pytest

from ldlm_callback.rank import IDENTITY

HANG = """
import ctypes

mutex = ctypes.create_string_buffer(64)
ctypes.CDLL(None).pthread_mutex_lock(mutex)

def wait_in_collective():
    print("there", flush=True)
    {call}

callback = HealthCallback(out=sys.argv[1], **{wishes})
callback.on_step(1)
wait_in_collective()
"""


def signal_of(training) -> int:
    page = (training.out / "heartbeat_rank0").read_bytes()
    return IDENTITY.unpack(page[: IDENTITY.size])[2]


def stands_still(pid: int) -> bool:
    """Whether no thread but the main one runs: a monitor signals after a stall only."""

    def spent() -> int:
        tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
        return sum(
            int(task.read_text().split()[0]) for task in tasks if task.parent.name != str(pid)
        )

    try:
        before = spent()
        time.sleep(0.1)
        # ns; a thread that waits for the GIL wakes every 5 ms
        return spent() - before < 5_000_000
    except (ProcessLookupError, FileNotFoundError):  # a thread ended between its name and its file
        return False


def ask(training, until) -> str:
    stacks = training.out / "stack_rank0.txt"
    until(lambda: stands_still(training.process.pid))
    os.kill(training.process.pid, signal_of(training))
    until(lambda: "<module>" in stacks.read_text())
    return stacks.read_text()


@pytest.mark.parametrize(
    "call",
    [
        "time.sleep(60)",
        "ctypes.CDLL(None).pthread_mutex_lock(mutex)",
        "ctypes.PyDLL(None).pthread_mutex_lock(mutex)  # the GIL is held",
        "any(iter(int, 1))  # a loop in C",
    ],
)
def test_a_signal_writes_the_stacks_even_while_the_gil_is_held(train, until, call) -> None:
    training = train(HANG.format(call=call, wishes={}))
    training.said("there")
    stacks = ask(training, until)
    assert "in wait_in_collective" in stacks
    assert training.process.poll() is None


def test_a_signal_that_is_used_already_is_left_alone(train, until) -> None:
    training = train(
        "signal.signal(signal.SIGUSR2, lambda *_: print('user', flush=True))"
        + HANG.format(call="[time.sleep(0.1) for _ in range(600)]", wishes={})
    )
    training.said("there")
    assert signal_of(training) not in (0, signal.SIGUSR2)
    assert "in wait_in_collective" in ask(training, until)
    os.kill(training.process.pid, signal.SIGUSR2)
    training.said("user")


def test_a_signal_that_faulthandler_has_already_is_left_alone(train) -> None:
    training = train(
        "import faulthandler; faulthandler.register(signal.SIGUSR2)"
        + HANG.format(call="time.sleep(60)", wishes={})
    )
    training.said("there")
    assert signal_of(training) not in (0, signal.SIGUSR2)


def test_without_a_signal_the_heartbeat_says_so(train) -> None:
    training = train(HANG.format(call="time.sleep(60)", wishes={"stack_signal": None}))
    training.said("there")
    assert signal_of(training) == 0
    assert not (training.out / "stack_rank0.txt").exists()


def test_the_handler_stays_after_close_so_that_a_late_signal_kills_nobody(train) -> None:
    training = train(
        """
        callback = HealthCallback(out=sys.argv[1])
        callback.close()
        os.kill(os.getpid(), signal.SIGUSR2)
        """
    )
    assert training.end() == (0, "")


def test_the_page_names_the_process(train) -> None:
    training = train(HANG.format(call="time.sleep(60)", wishes={}))
    training.said("there")
    pid = training.process.pid
    with open(f"/proc/{pid}/stat") as stat:
        started = int(stat.read().rpartition(")")[2].split()[19])
    page = (training.out / "heartbeat_rank0").read_bytes()
    magic, reported, _, ticks, namespace, *_ = IDENTITY.unpack(page[: IDENTITY.size])
    assert (magic, reported, ticks) == (b"ldlmhb02", pid, started)
    assert namespace == os.stat(f"/proc/{pid}/ns/pid").st_ino
