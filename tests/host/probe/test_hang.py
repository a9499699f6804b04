"""Which rank hangs, in which phase, at which line: asked of real processes."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ldlm_callback.rank import Beat, HeartbeatPage, Identity, pid_namespace
from ldlm_monitor.base.records import Event, Heartbeat, Position
from ldlm_monitor.host.probe.hang import SKEW_SECONDS, RankReport, accused, beats, events_of, look
from ldlm_monitor.host.probe.heartbeat import pages, read
from ldlm_monitor.host.probe.stacks import Stacks, _written, ask, may_ask, stacks_of
from ldlm_monitor.judge.run.verdict import ProbeCandidate


def case_in(folder: Path, since: float = 0.0) -> ProbeCandidate:
    rows = (str(folder / "health_rank0.jsonl"),)
    here = Position("train.log", 1, 0)
    return ProbeCandidate("run_a", "stalled", since, None, None, rows, {}, (), None, here)


TRAINER = """
import ctypes, os, sys, time
from ldlm_callback import HealthCallback

def all_reduce():
    print("there", flush=True); time.sleep(600)

def read_batch():
    print("there", flush=True); ctypes.PyDLL(None).pthread_mutex_lock(mutex)

mutex = ctypes.create_string_buffer(64)
ctypes.CDLL(None).pthread_mutex_lock(mutex)
rank, out = int(sys.argv[1]), sys.argv[2]
callback = HealthCallback(run="run_a", out=out, rank=rank, world_size=3, gpu=False)
for step in range(10):
    callback.on_step(step, loss=1.0)
if rank == 1:
    with callback.phase("data"):
        read_batch()
all_reduce()
"""


@pytest.fixture
def ranks(tmp_path):
    """Three ranks of which one reads data for ever, with its GIL held, and two wait for it."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAINER))
    out = tmp_path / "saved/run_a"
    started = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(out)], stdout=subprocess.PIPE, text=True
        )
        for rank in range(3)
    ]
    for each in started:
        assert each.stdout is not None
        assert each.stdout.readline() == "there\n"
    deadline = time.monotonic() + 30
    while {page.phase for page in pages([out])} != {"train", "data"}:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield out
    for each in started:
        each.kill()
        each.communicate()


def test_the_rank_that_hangs_is_named_with_its_phase_and_line(ranks) -> None:
    found = look(case_in(ranks), time.time(), seconds=10.0)
    beats = [each for each in found if isinstance(each, Heartbeat)]
    events = [each for each in found if isinstance(each, Event)]
    assert [(beat.rank, beat.step) for beat in beats] == [(0, 9), (1, 9), (2, 9)]
    assert [event.rank for event in events] == [1, 0, 2]
    first, *others = events
    assert first.kind == "stack_dump"
    assert first.message.startswith(
        "rank 1 is at another place than the others, in data after step 9"
    )
    assert first.message.endswith("train.py:9 in read_batch")
    assert first.fields["accused"] is True
    assert [event.fields["accused"] for event in others] == [False, False]
    assert all(event.message.endswith("train.py:6 in all_reduce") for event in others)
    frames = first.fields["threads"][0]["frames"].splitlines()
    assert any(frame.endswith("in read_batch") for frame in frames)  # which may still call into it


def test_a_page_that_an_earlier_launch_left_behind_accuses_nobody(ranks) -> None:
    left = Identity(
        pid=os.getpid(),
        stack_signal=0,
        started=1,
        pid_namespace=pid_namespace(),
        rank=3,
        host=socket.gethostname().encode(),
        stack_file=b"",
        recorder_socket=b"",
    )
    writer = HeartbeatPage(ranks / "heartbeat_rank3", left)
    writer.beat(Beat(step=4, time=5.0, phase_since=4.0, phase=b"train", status=b"running"))
    writer.sync()
    found = look(case_in(ranks, since=time.time()), time.time(), seconds=10.0)
    beats = [each.rank for each in found if isinstance(each, Heartbeat)]
    accused = [each.rank for each in found if isinstance(each, Event) and each.fields["accused"]]
    assert (beats, accused) == ([0, 1, 2], [1])


def test_a_rank_can_be_asked_again_and_goes_on(ranks) -> None:
    page = read(ranks / "heartbeat_rank0")
    assert page is not None
    first, second = ask(page, 10.0), ask(page, 10.0)
    assert first is not None
    assert second is not None
    assert first.main == second.main
    assert first.place is not None
    assert first.place.function == "all_reduce"
    assert may_ask(page)


def test_a_page_makes_nobody_signal_what_did_not_register(ranks, tmp_path) -> None:
    page = read(ranks / "heartbeat_rank0")
    assert page is not None
    assert may_ask(page)
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        started = int(Path(f"/proc/{sleeper.pid}/stat").read_text().rpartition(")")[2].split()[19])
        lies = [
            replace(page, pid=sleeper.pid, started=started),
            replace(page, pid=os.getpid()),
            replace(page, stack_signal=signal.SIGKILL),
            replace(page, stack_signal=signal.SIGUSR1),
            replace(page, stack_signal=0),
            replace(page, stack_file="stack_rank1.txt"),
            replace(page, stack_file="../run_a/stack_rank0.txt"),
            replace(page, owner=page.owner + 1),
            replace(page, status="finished"),
            replace(page, path=tmp_path / "heartbeat_rank0"),
        ]
        assert [may_ask(lie) for lie in lies] == [False] * len(lies)
        assert [ask(lie, 0.2) for lie in lies] == [None] * len(lies)
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_rank_that_is_stopped_does_not_hold_up_the_others(ranks) -> None:
    page = read(ranks / "heartbeat_rank2")
    assert page is not None
    os.kill(page.pid, signal.SIGSTOP)
    began = time.monotonic()
    found = look(case_in(ranks), time.time(), seconds=1.0)
    assert time.monotonic() - began < 10
    first, *others = [each for each in found if isinstance(each, Event)]
    assert first.message == "rank 2 does not answer, in train after step 9"
    assert [each.rank for each in others] == [0, 1]


COLLECTIVE = stacks_of(
    'Thread 0x01 (most recent call first):\n  File "/usr/lib/python3.11/threading.py", line 9 in x'
    "\n\nCurrent thread 0x02 (most recent call first):\n"
    '  File "/v/site-packages/torch/distributed/distributed_c10d.py", line 2810 in all_reduce\n'
    '  File "/v/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper\n'
    '  File "/home/me/train.py", line 41 in step\n'
)
LOADING = stacks_of(
    "Current thread 0x02 (most recent call first):\n"
    '  File "/usr/lib/python3.11/selectors.py", line 415 in select\n'
    '  File "/home/me/data.py", line 7 in fetch\n'
    '  File "/home/me/train.py", line 30 in <module>\n'
)


def test_the_main_thread_is_the_last_and_the_place_is_the_users_own_line() -> None:
    assert [name for name, _ in COLLECTIVE.threads] == [
        "Current thread 0x02",
        "Thread 0x01",
    ]
    assert (str(COLLECTIVE.place), COLLECTIVE.wait is not None) == (
        "/home/me/train.py:41 in step",
        True,
    )
    assert (str(LOADING.place), LOADING.wait) == ("/home/me/data.py:7 in fetch", None)
    assert stacks_of("garbage\n  File x\n").place is None


def test_the_largest_dump_is_read_with_its_main_thread(tmp_path) -> None:
    """faulthandler writes 100 threads of 100 frames at most, the main thread last."""
    folder = "/home/me/.venv/lib/python3.11/site-packages/torch/distributed"
    frame = f'  File "{folder}/distributed_c10d.py", line 2806 in all_reduce\n'
    path = tmp_path / "stack_rank0.txt"
    path.write_text(
        "".join(f"Thread 0x{n} (most recent call first):\n{frame * 100}" for n in range(100))
    )
    stacks = stacks_of(_written(path, 0, time.monotonic()))
    assert stacks.threads[0][0] == "Thread 0x99"
    assert len(stacks.main) == 64


@pytest.fixture
def rank(ranks):
    template = read(ranks / "heartbeat_rank0")
    assert template is not None

    def make(number: int, step: int, stacks: Stacks | None, phase: str = "train") -> RankReport:
        return RankReport(replace(template, rank=number, step=step, phase=phase), stacks)

    return make


def test_a_rank_that_is_a_step_behind_is_accused(rank) -> None:
    reported = [rank(0, 12, COLLECTIVE), rank(1, 11, None), rank(2, 12, COLLECTIVE)]
    reported[1] = replace(reported[1], asked=False)
    assert accused(reported) == (frozenset({1}), "is behind the others")
    first, *_ = events_of(reported, case_in(Path()), now=reported[1].page.phase_since + 62)
    assert first.message == "rank 1 is behind the others, in train after step 11"
    assert first.fields["phase_seconds"] == 62


def test_of_two_ranks_the_one_that_does_not_wait_is_accused(rank) -> None:
    reported = [rank(0, 12, COLLECTIVE), rank(1, 12, LOADING)]
    assert accused(reported)[0] == {1}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [([12, 11], {1}), ([12, 11, 12, 11], {1, 3}), ([12, 11, 11], set()), ([12, 12], set())],
)
def test_at_most_half_of_the_ranks_are_accused_of_being_behind(rank, steps, expected) -> None:
    reported = [rank(number, step, COLLECTIVE) for number, step in enumerate(steps)]
    assert accused(reported)[0] == expected


@pytest.mark.parametrize(
    ("silent", "answering", "expected"), [(1, 1, {0}), (2, 2, {0, 1}), (2, 1, set()), (2, 0, set())]
)
def test_no_more_are_accused_of_silence_than_answered(rank, silent, answering, expected) -> None:
    reported = [rank(number, 12, None) for number in range(silent)]
    reported += [rank(silent + number, 12, COLLECTIVE) for number in range(answering)]
    assert accused(reported)[0] == expected


@pytest.mark.parametrize(
    ("loading", "waiting", "expected"), [(1, 1, {0}), (2, 2, {0, 1}), (2, 3, {0, 1}), (3, 2, set())]
)
def test_at_most_half_are_accused_of_being_elsewhere_than_where_the_others_wait(
    rank, loading, waiting, expected
) -> None:
    reported = [rank(number, 12, LOADING) for number in range(loading)]
    reported += [rank(loading + number, 12, COLLECTIVE) for number in range(waiting)]
    found, why = accused(reported)
    assert (found if why == "is not where the others wait for it" else set()) == expected


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        (["data", "eval"], set()),
        (["data", "eval", "eval"], {0}),
        (["data", "data", "eval", "eval"], set()),
        (["data", "data", "eval", "eval", "eval"], {0, 1}),
    ],
)
def test_fewer_than_half_are_accused_of_standing_elsewhere(rank, phases, expected) -> None:
    reported = [rank(number, 12, LOADING, phase) for number, phase in enumerate(phases)]
    assert accused(reported)[0] == expected


def test_a_lone_rank_is_accused_of_taking_no_step(rank) -> None:
    assert accused([rank(3, 12, COLLECTIVE)]) == (frozenset({3}), "takes no step")


def test_a_page_counts_from_ten_seconds_before_the_runs_last_step_on(ranks) -> None:
    page = read(ranks / "heartbeat_rank0")
    assert page is not None
    assert 0 in {beat.rank for beat in beats(case_in(ranks, page.time + SKEW_SECONDS))}
    assert 0 not in {beat.rank for beat in beats(case_in(ranks, page.time + SKEW_SECONDS + 0.01))}


def test_nobody_is_accused_where_all_stand_at_one_place(rank) -> None:
    reported = [rank(0, 12, COLLECTIVE), rank(1, 12, COLLECTIVE)]
    assert accused(reported) == (frozenset(), "")
    assert [event.fields["accused"] for event in events_of(reported, case_in(Path()), 0.0)] == [
        False,
        False,
    ]


def test_never_more_than_half_are_accused(rank) -> None:
    reported = [rank(0, 12, COLLECTIVE), rank(1, 12, LOADING), rank(2, 12, LOADING)]
    assert 2 * len(accused(reported)[0]) <= 3


def stacks_in(*calls: str) -> Stacks:
    """Stacks of a main thread in these calls, the innermost first: `file:line function`."""
    lines = ["Current thread 0x02 (most recent call first):"]
    for call in calls:
        place, function = call.split(" ")
        file, line = place.split(":")
        lines.append(f'  File "{file}", line {line} in {function}')
    return stacks_of("\n".join(lines) + "\n")


_TORCH = "/v/site-packages/torch"
_BACKWARD = (
    f"{_TORCH}/autograd/graph.py:850 _engine_run_backward",
    f"{_TORCH}/_tensor.py:640 backward",
    "/home/me/train.py:44 step",
)


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        (_BACKWARD, ("/home/me/train.py:33 hook", *_BACKWARD)),
        (
            (f"{_TORCH}/distributed/distributed_c10d.py:2810 all_reduce", *_BACKWARD),
            ("/home/me/train.py:33 hook", *_BACKWARD),
        ),
        (
            _BACKWARD,
            (
                "/home/me/model.py:12 forward",
                f"{_TORCH}/nn/parallel/distributed.py:1637 forward",
                "/home/me/train.py:40 step",
            ),
        ),
    ],
    ids=["a hook below backward", "a hook beside a collective", "a layer below DDP"],
)
def test_users_code_that_torch_calls_is_outside_of_what_the_others_wait_in(
    rank, inside, outside
) -> None:
    reported = [rank(0, 12, stacks_in(*inside)), rank(1, 12, stacks_in(*outside))]
    first, *_ = events_of(reported, case_in(Path()), now=0.0)
    where = inside[0].rpartition(" ")[2].removeprefix("_engine_run_")
    assert first.message.startswith("rank 1 is not where the others wait for it")
    assert first.message.endswith(f"; the others wait in {where}")
    assert first.fields["missing_ranks"] == [1]
    place = outside[0].rpartition("/")[2]
    line, function = place.split(" ")
    assert first.fields["what"] == f"in {function} at {line}, the others wait in {where}"
