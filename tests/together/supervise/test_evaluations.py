"""`run --on hang=kill` and evaluations of two minutes in a training with steps of a second."""

from collections.abc import Iterator

import pytest

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.snapshot import Snapshot, VerdictView
from ldlm_monitor.host.supervise.reactions import Reactions, Supervisor
from ldlm_monitor.monitor import Monitor

START, LOG = 1_769_681_700.0, "train.log"
EVALUATION = 120


def training(every: int, until: int, *, announced: bool) -> Iterator[tuple[float, str]]:
    """Seconds since the start, and the line written then; a hang follows the last."""
    at = 0.0
    for step in range(1, until + 1):
        at += 1
        yield at, f"step {step}/9000 loss {3 - step / 9000:.4f}"
        if step % every == 0 and step < until:
            if announced:
                yield at, "***** Running Evaluation *****"
            at += EVALUATION


def seen(snapshot: Snapshot, *, busy: bool) -> Snapshot:
    """The snapshot with the verdict of a host on which a process of the run computes."""
    verdict = VerdictView(word="silent", reasons=(), computes=True) if busy else None
    runs = tuple(each.model_copy(update={"verdict": verdict}) for each in snapshot.runs)
    return snapshot.model_copy(update={"runs": runs})


def killed_at(
    lines: Iterator[tuple[float, str]], wait: int = 700, busy: int = 0
) -> tuple[float | None, float]:
    """When the supervisor sends the first signal, and the time of the last line.

    In the first `busy` evaluations the processes are seen, and one computes.
    """
    monitor = Monitor()
    supervisor = Supervisor(Reactions.read(["hang=kill"], "5/24h"), "train", START)
    written, offset, last = list(lines), 0, 0.0
    pauses, fired = 0, False
    for second in range(int(written[-1][0]) + wait):
        now = START + second
        while written and written[0][0] <= second:
            last, line = written.pop(0)
            data = f"{line}\n".encode()
            monitor.feed(Chunk(LOG, (1, 1, 0), offset, 1, data), now)
            offset += len(data)
        monitor.tick(now)
        fires = any(alert.name == "TrainingStalled" for alert in monitor.alerts())
        pauses += fires and not fired
        fired = fires
        if fires and any(
            each.number
            for each in supervisor.observe(seen(monitor.snapshot(), busy=pauses <= busy), now)
        ):
            return second, last
    return None, last


@pytest.mark.parametrize("every", [37])
def test_an_evaluation_that_the_log_announces_is_not_killed(every: int) -> None:
    """A hang at another step is: at the limit, which the evaluations do not raise."""
    killed, last = killed_at(training(every, until=every * 3 + 11, announced=True))
    assert killed is not None
    assert last == every * 3 + 11 + 3 * EVALUATION
    assert killed - last <= 45


@pytest.mark.parametrize("every", [37, 100])
def test_an_evaluation_without_a_word_is_not_killed(every: int) -> None:
    killed, last = killed_at(training(every, until=every * 3 + 11, announced=False))
    assert last == every * 3 + 11 + 3 * EVALUATION
    assert killed is not None
    assert killed > last


def test_a_hang_of_unseen_processes_is_killed_after_five_minutes() -> None:
    killed, last = killed_at(training(1000, until=111, announced=False))
    assert killed is not None
    assert killed - last == pytest.approx(300, abs=2)


@pytest.mark.parametrize("every", [37, 391])
def test_an_evaluation_at_any_distance_that_the_run_has_shown_is_not_killed(every: int) -> None:
    """The first is seen through by its processes, which compute; the next ones come on time."""
    killed, last = killed_at(training(every, until=every * 4 + 11, announced=False), busy=1)
    assert last == every * 4 + 11 + 4 * EVALUATION
    assert killed is not None
    assert killed > last
