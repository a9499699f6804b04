"""The first line of a message: what happened, where, and what to do, within 80 characters.

What a lock screen shows of ten kinds of news. The lines of logs are as trainers write them.
"""

import re
from collections.abc import Iterable, Sequence

import pytest

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.headline import Headline
from ldlm_monitor.judge.core.headlines import headline_of, headline_of_many
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.service.notify.content import news_of, plain_text
from ldlm_monitor.service.notify.message import from_transition, message_of
from tests.judge.incidents.cascades import nccl_timeout
from tests.service.daemon.failing_lines import OOM

START = 1_780_000_000.0
Lines = Sequence[tuple[float, str]]


def steps(first: int, last: int, since: float = 0.0, *, every: float = 1.0) -> Lines:
    """Steps of 1000, `every` seconds apart from `since` on."""
    return [
        (since + (step - first) * every, f"step {step}/1000 loss {3 - step / 500:.4f} lr 3e-4")
        for step in range(first, last + 1)
    ]


def watched(run: str, lines: Lines, until: float) -> tuple[list[Transition], Monitor]:
    """All changes of alerts of a log that comes line by line, until so many seconds."""
    monitor, offset, found = Monitor(), 0, list[Transition]()
    for number, (second, text) in enumerate(lines, 1):
        data = f"{text}\n".encode()
        found += monitor.tick(START + second)
        found += monitor.feed(Chunk(f"{run}.log", (1, 1, 0), offset, number, data), START + second)
        offset += len(data)
    found += monitor.tick(START + until)
    return [each for each in found if each.state != "pending" and not each.is_heartbeat], monitor


def first_lines(run: str, lines: Lines, until: float) -> list[str]:
    return [each.headline for each in watched(run, lines, until)[0]]


NAN = (
    *steps(1, 50),
    (50.5, "✓ Checkpoint saved: out/ckpt_50.pt"),
    *steps(51, 59, 51.0),
    (60.0, "step 60/1000 loss nan lr 3e-4"),
    (61.0, "step 61/1000 loss nan lr 3e-4"),
)
CUDA = (
    "[rank3]: Traceback (most recent call last):",
    '[rank3]:   File "train.py", line 9, in <module>',
    "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered",
)
KILLED = (
    "E1121 07:08:11.100000 91 torch/distributed/elastic/multiprocessing/api.py:874] failed"
    " (exitcode: -9) local_rank: 5 (pid: 901) of binary: /usr/bin/python3"
)
TIME_LIMIT = (
    "slurmstepd: error: *** STEP 77120.0 ON node014 CANCELLED AT 2026-03-02T18:00:11"
    " DUE TO TIME LIMIT ***"
)
TIMEOUT = [
    (second, line)
    for second, _, line in sorted(nccl_timeout([0, 1, 2, 4, 5, 6, 7], 61.0, seconds=60))
    if second < 70.0  # before the processes abort
]
SLOW = (*steps(1, 400), *steps(401, 520, 401.0, every=4.0))
FAILURES = {
    "NaN": ("nan-7b", NAN, 62.0, "🔴 nan-7b: loss NaN at step 60 → roll back to 50"),
    "hang": ("hang-7b", steps(1, 59), 4000.0, "🔴 hang-7b: no step since step 59 → restart"),
    "crash": (
        "crash-7b",
        (*steps(1, 80), *((81.0, line) for line in CUDA)),
        120.0,
        "🔴 crash-7b: RuntimeError: CUDA error: an illegal m… at step 80, rank 3 → restart",
    ),
    "out of memory": (
        "oom-7b",
        (*steps(1, 12), (13.0, OOM.strip())),
        40.0,
        "🔴 oom-7b: out of GPU memory at step 12 → lower the batch size",
    ),
    "rank lost": (
        "lost-7b",
        (*steps(1, 100), (101.0, KILLED)),
        140.0,
        "🔴 lost-7b: process killed by SIGKILL at step 100, rank 5 → restart",
    ),
    "NCCL timeout": (
        "nccl-7b",
        (*steps(1, 60), *TIMEOUT),
        85.0,
        "🔴 nccl-7b: NCCL timeout at step 60, rank 0 waited → restart",
    ),
    "killed": (
        "limit-7b",
        (*steps(1, 30), (31.0, TIME_LIMIT)),
        60.0,
        "🔴 limit-7b: time limit reached at step 30 → restart",
    ),
    "throughput": (
        "slow-7b",
        SLOW,
        900.0,
        "🟡 slow-7b: slower since step 395, by 75% → see whether one node is slow",
    ),
    "recovery": (
        "hang-7b",
        (*steps(1, 59), *steps(60, 64, 459.0)),
        480.0,
        "✅ hang-7b: stepping again after 6m 41s (step 59 → 60)",
    ),
    "finished": (
        "run-a",
        (*steps(1, 1000, every=11.53), (11520.0, "Training complete! Time: 3.20h")),
        11600.0,
        "✔ run-a finished: 3h 12m, loss 1",
    ),
}


def test_a_message_about_a_pause_that_is_over_has_one_duration_for_it() -> None:
    run, lines, until, _ = FAILURES["recovery"]
    over = from_transition(watched(run, lines, until)[0][-1])
    title, text = plain_text(news_of(message_of(over)))
    assert re.findall(r"after [^(]*", f"{title}\n{text}") == ["after 6m 41s "]


KEY_ERROR = (
    "Traceback (most recent call last):",
    '  File "train.py", line 9, in <module>',
    "KeyError: 'lr'",
)


def test_what_a_run_is_called_hides_nothing_of_what_happened_and_secrets_stay_hidden() -> None:
    """`x-key: KeyError` has the form of a key with its value."""
    lines = (*steps(1, 80), *((81.0, line) for line in KEY_ERROR))
    over = from_transition(watched("x-key", lines, 120.0)[0][0])
    title, _ = plain_text(news_of(message_of(over)))
    assert title.startswith("🔴 x-key: KeyError: 'lr' at step 80")
    secret = Headline(mark="🔴", run="a", what="refused HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123")
    assert secret.line(40) == "🔴 a: refused HF_TOKEN=[redacted]"


GROWN = {
    "recovery": None,
    "NCCL timeout": "🔴 nccl-7b: rank 3 did not join _REDUCE_SCATTER_BASE #7753 at step 60"
    " → restart",
}
"""What differs some seconds later: nothing is wrong any more, or more ranks have reported."""


@pytest.mark.parametrize("kind", FAILURES)
def test_the_last_message_says_what_happened_where_and_what_to_do(kind: str) -> None:
    run, lines, until, expected = FAILURES[kind]
    found = first_lines(run, lines, until)
    assert found[-1 if kind != "hang" else -2] == expected
    assert max(map(len, found)) <= 80


def test_an_equal_failure_of_many_runs_is_one_line() -> None:
    runs = [f"run{number:03}" for number in range(167)]
    line = headline_of_many("TrainingStalled", "critical", runs, of=167, within=9.6).line()
    assert line == "🔴 167 runs stalled within 9.6s: storage, or the monitor itself"
    some = headline_of_many("TrainingStalled", "critical", runs[:20], of=167, within=9.6).line()
    assert some.startswith("🔴 20 of 167 runs stalled")
    over = headline_of_many("TrainingStalled", "", runs, of=167, within=9.6).line()
    assert over == "✅ 167 runs stepping again"
    pair = headline_of_many("NonFiniteLoss", "critical", ["a", "b"], of=2, within=3).line()
    assert pair == "🔴 2 runs with a loss of NaN within 3s: a, b"


@pytest.mark.parametrize("kind", FAILURES)
def test_what_a_run_is_now_reads_as_its_last_message_does(kind: str) -> None:
    run, lines, until, expected = FAILURES[kind]
    snapshot = watched(run, lines, until)[1].snapshot()
    found = headline_of(snapshot.runs[0], snapshot.alerts, snapshot.incidents)
    now = GROWN.get(kind, expected)
    assert (found and found.line()) == now


def test_a_line_never_names_another_state_than_its_mark() -> None:
    lines: Iterable[str] = first_lines("hang-7b", FAILURES["recovery"][1], 480.0)
    assert [line[0] for line in lines][-1] == "✅"
    assert not any(re.search(r"\d+s.*ago|for \d", line) for line in lines if line[0] == "🔴")


def test_of_a_long_name_the_ends_stay_and_what_to_do_stays_whole() -> None:
    head = Headline(
        mark="🔴",
        run="train_20261121_083515_of_the_big_cluster_in_the_north",
        what="RuntimeError: CUDA error: an illegal memory access was encountered",
        where=" at step 48000, rank 1023",
        todo="restart",
    )
    line = head.line()
    assert len(line) == 80
    assert line.startswith("🔴 train_2026")
    assert line.endswith(" at step 48000, rank 1023 → restart")
