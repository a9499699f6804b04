"""Stack dumps in a log: what faulthandler and py-spy write becomes one event a dump."""

import subprocess
import sys
from itertools import chain, zip_longest

from ldlm_monitor.base.records import Event, from_json, to_json
from ldlm_monitor.logs.parse.stack_dumps import MAX_FRAMES, MAX_THREADS

HUNG = """
import faulthandler, signal, sys, threading, time

faulthandler.register(signal.SIGUSR2, all_threads=True)

def read_batches(stop):
    stop.wait()

def all_reduce():
    signal.raise_signal(signal.SIGUSR2)

def train_step():
    all_reduce()

stop = threading.Event()
reader = threading.Thread(target=read_batches, args=(stop,))
reader.start()
for _ in range(int(sys.argv[1])):
    train_step()
stop.set()
reader.join()
"""


def dumped(times: int = 1) -> str:
    """What a real process writes of itself."""
    done = subprocess.run(
        [sys.executable, "-c", HUNG, str(times)], capture_output=True, text=True, check=True
    )
    return done.stderr


def stacks(records) -> list[Event]:
    return [each for each in records if isinstance(each, Event) and each.kind == "stack_dump"]


def test_a_real_dump_of_two_threads_is_one_event_that_says_where_the_main_thread_stands(parse):
    text = dumped()
    (event,) = parse(text)
    assert event.message == "main thread in all_reduce (<string>:10)"
    assert (event.severity, event.fields["role"]) == ("info", "evidence")
    reader, main = event.fields["threads"]
    assert main["frames"] == [
        "all_reduce (<string>:10)",
        "train_step (<string>:13)",
        "<module> (<string>:19)",
    ]
    assert any(frame.startswith("read_batches") for frame in reader["frames"])
    assert from_json(to_json(event)) == event


def test_the_same_threads_again_are_another_dump(parse):
    assert len(stacks(parse(dumped(3)))) == 3


def test_dumps_of_two_ranks_that_write_at_once_come_apart(parse):
    lines = dumped().splitlines()
    first = [f"[rank0]: {line}" for line in lines]
    second = [f"[rank1]: {line}" for line in lines]
    mixed = chain.from_iterable(zip_longest(first, second, fillvalue=""))
    found = stacks(parse("\n".join(mixed) + "\n"))
    assert [(event.rank, len(event.fields["threads"])) for event in found] == [(0, 2), (1, 2)]


def test_where_a_process_crashed_is_told_beside_the_crash(parse):
    program = (
        "import ctypes, faulthandler\nfaulthandler.enable()\n"
        "def copy(): ctypes.string_at(0)\ncopy()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    crash, stack = parse(done.stderr)
    assert (crash.kind, stack.kind) == ("fatal_python_error", "stack_dump")
    assert "string_at" in stack.message


def test_lines_behind_a_dump_are_not_lost(parse):
    after = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    assert [r.kind for r in parse(dumped() + after)] == ["stack_dump", "cuda_error"]


def test_a_dump_of_very_many_threads_and_frames_stays_small(parse):
    thread = "".join(f"    f{n} (m.py:{n})\n" for n in range(1, 300))
    text = "".join(f'Thread {n} (idle): "w{n}"\n{thread}' for n in range(1, 200))
    (event,) = parse(text)
    threads = event.fields["threads"]
    assert len(threads) == MAX_THREADS
    assert {len(each["frames"]) for each in threads} == {MAX_FRAMES}
    assert threads[-1]["name"] == "w199"
