"""How much a turn of the daemon reads, whose silence waits for it, and what is shown then."""

import errno
from collections.abc import Callable

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.logs.parse.run_names import RunNames
from ldlm_monitor.logs.source.follower import TURN_BYTES
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.daemon.listener import bound, names_for, url_of
from ldlm_monitor.service.daemon.pictures import Pictures
from ldlm_monitor.service.daemon.reading_lag import ReadingLag
from ldlm_monitor.service.daemon.turn_budget import LEAST_BYTES, TurnBudget

KIB, MIB = 1024, 1024 * 1024
NOW = 1_795_250_120.0


@pytest.mark.parametrize(
    ("turns", "size"),
    [
        ([(64 * KIB, 0.01, False)], LEAST_BYTES),
        ([(64 * KIB, 0.01, True)], 128 * KIB),
        ([(64 * KIB, 0.01, True)] * 99, TURN_BYTES),
        ([(64 * KIB, 0.0625, True)], 128 * KIB),
        ([(96 * KIB, 0.125, True)], 96 * KIB),
        ([(64 * KIB, 0.07, False)], int(64 * KIB * 0.125 / 0.07)),
        ([(64 * KIB, 0.01, True)] * 3 + [(512 * KIB, 0.25, True)], 256 * KIB),
        ([(64 * KIB, 10.0, True)], LEAST_BYTES),
        ([(32 * KIB - 1, 0.01, True)], LEAST_BYTES),
        ([(32 * KIB, 0.01, True)], 128 * KIB),
        ([(0, 0.01, True)], 128 * KIB),
    ],
)
def test_a_turn_reads_what_is_judged_in_an_eighth_of_a_second(
    turns: list[tuple[int, float, bool]], size: int
) -> None:
    budget = TurnBudget()
    assert budget.size == LEAST_BYTES == 64 * KIB
    for read, seconds, backlog in turns:
        budget.note(read, seconds, has_backlog=backlog)
    assert budget.size == size


def a_monitor(*runs: str) -> Monitor:
    monitor = Monitor(names=RunNames())
    for number, run in enumerate(runs):
        text = "".join(f"step {step} loss 2.5\n" for step in range(9)).encode()
        monitor.feed(Chunk(f"{run}.log", (1, number + 1, 0), 0, 1, text), NOW)
    return monitor


class Lag:
    """The lag of a monitor of two runs, and what it was given."""

    def __init__(self) -> None:
        self.given: list[dict[str, float]] = []
        self.lag = ReadingLag(a_monitor("a", "b"), lambda held: self.given.append(dict(held)))


def test_after_a_long_turn_all_runs_were_read_to_its_begin_alone() -> None:
    seen = Lag()
    for at in (NOW, NOW + 1.0):
        seen.lag.begin(at)
        assert seen.given == []
    seen.lag.begin(NOW + 2.5)
    assert seen.given == [{"a": NOW + 1.0, "b": NOW + 1.0}]
    assert seen.lag.last_turn == NOW + 1.0
    seen.lag.read(["a.log"], [])
    assert seen.given[-1] == {"a": NOW + 1.0}
    seen.lag.judged()
    assert seen.given[-1] == {}


def test_time_that_was_left_out_already_holds_nothing_back() -> None:
    seen = Lag()
    seen.lag.begin(NOW)
    seen.lag.leave_out(60.0)
    seen.lag.begin(NOW + 61.0)
    assert seen.given == []
    seen.lag.begin(NOW + 63.0)
    assert seen.given == [{"a": NOW + 61.0, "b": NOW + 61.0}]


def test_files_that_are_behind_hold_back_their_runs_alone() -> None:
    seen = Lag()
    seen.lag.begin(NOW)
    seen.lag.read([], [("a.log", NOW - 1.0)])
    seen.lag.judged()
    assert seen.given == []
    seen.lag.read([], [("a.log", NOW - 3.0), ("a.log", NOW - 2.0)])
    seen.lag.judged()
    assert seen.given == [{"a": NOW - 3.0}]


class Bind:
    """Ports of which some are taken."""

    def __init__(self, *taken: int, code: int = errno.EADDRINUSE) -> None:
        self.taken, self.code = taken, code
        self.tried: list[int] = []

    def __call__(self, host: str, port: int) -> int:
        self.tried.append(port)
        if port in self.taken:
            raise OSError(self.code, "no")
        return port


def test_of_default_ports_the_first_free_one_of_twenty_is_bound() -> None:
    assert bound(("::1", 100), "--listen", Bind(100, 101), is_explicit=False) == 102
    bind = Bind(*range(100, 200))
    with pytest.raises(UsageError, match=r"--listen: cannot listen on ::1:100 \(no\)"):
        bound(("::1", 100), "--listen", bind, is_explicit=False)
    assert bind.tried == [*range(100, 120)]


@pytest.mark.parametrize(
    "bind", [Bind(100), Bind(100, code=errno.EACCES)], ids=["explicit", "forbidden"]
)
def test_a_port_that_was_named_or_is_forbidden_is_the_only_one(bind: Bind) -> None:
    with pytest.raises(UsageError):
        bound(("h", 100), "--listen", bind, is_explicit=bind.code == errno.EADDRINUSE)
    assert bind.tried == [100]


def test_urls_and_host_names_are_those_that_people_use() -> None:
    assert url_of("127.0.0.1", 9847, encrypts=False) == "http://127.0.0.1:9847"
    assert url_of("::1", 1, encrypts=True) == "https://[::1]:1"
    assert names_for(Settings(), "0.0.0.0") is None
    assert names_for(Settings(), "127.0.0.1") is not None
    assert names_for(Settings(allowed_hosts=("gpu01",)), "0.0.0.0") is not None


@pytest.fixture
def pictures() -> Callable[[], Pictures]:
    return lambda: Pictures(a_monitor("a"))


def test_a_picture_is_taken_when_it_is_old_and_due(pictures: Callable[[], Pictures]) -> None:
    seen = pictures()
    assert (seen.preview.reading, seen.is_old) == (0.0, False)
    assert not seen.take(NOW, at_once=True)
    assert seen.take(NOW, at_once=False, reading=0.5, judged_to=NOW - 60), "how far it is read"
    assert (seen.snapshot.reading, seen.snapshot.judged_to) == (0.5, NOW - 60)
    assert not seen.take(NOW + 0.1, at_once=False, reading=0.6)
    assert seen.take(NOW + 0.1, at_once=True, reading=0.6)
    assert seen.take(seen.due, at_once=False, partial=["a"], reading=0.6, judged_to=NOW)
    assert [run.health for run in seen.snapshot.runs] == ["READING"]
    assert not seen.take(NOW + 9, at_once=True, partial=["a"], reading=0.6)
    assert seen.take(NOW + 9, at_once=True)
    assert [run.health for run in seen.preview.runs] != ["READING"]


def test_inputs_without_a_run_are_listed_with_why_each_five_seconds(
    pictures: Callable[[], Pictures],
) -> None:
    seen, matched = pictures(), [["*.txt"], []]
    followed = ["a.log", "new.log", *(f"n{number}.log" for number in range(200))]

    def note(at: float) -> list[tuple[str, str]]:
        seen.note_inputs(at, lambda: matched.pop(0), ["secret.log"], followed, list)
        seen.take(at, at_once=True)
        return [(each.name, str(each.state)) for each in seen.snapshot.inputs]

    first = note(NOW)
    assert first[:3] == [
        ("*.txt", "waiting"), ("secret.log", "unreadable"), ("new.log", "reading"),
    ]  # fmt: skip
    assert len(first) == 100
    assert note(NOW + 4.9) == first
    assert note(NOW + 5.0)[0] == ("secret.log", "unreadable")
    assert matched == []
    note(NOW + 10.0)  # a pattern that is matched is not asked again
