"""A start sends what the newest lines show; the alert of the judged history takes that message."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.daemon.dispatcher import UNCONFIRMED
from ldlm_monitor.service.daemon.pump import CutShort
from ldlm_monitor.service.notify.message import Message, Receipt
from ldlm_monitor.service.notify.policy import Policy, StreamPolicy
from tests.together.watching import NOW, SLACK, Watching, append

PLACE = "a message that can be edited"
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
CRASH = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
RuntimeError: CUDA error: an illegal memory access was encountered
"""
WATCHDOG = (
    "[rank3]:[E ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1204, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for "
    "600026 milliseconds before timing out.\n"
)


def stamp(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} - INFO - "


def steps(count: int, last: str = "2.5", end: float = NOW) -> str:
    """Steps with their times, one a second, up to `end`; the loss of the last one is `last`."""
    lines = []
    for step in range(count):
        at = stamp(end - (count - 1 - step))
        loss = last if step == count - 1 else f"2.{step % 7}"
        lines.append(f"{at}step {step} loss {loss} lr 1e-4\n")
    return "".join(lines)


def uploads(begin: float, end: float) -> str:
    """What a launcher writes of a run that has ended, once a minute."""
    return "".join(f"{stamp(at)}uploading logs\n" for at in range(int(begin), int(end), 60))


class Start:
    """A monitor of a folder, and what its receiver has got, also while a turn reads."""

    def __init__(self, folder: Path, policy: StreamPolicy) -> None:
        self.folder, self.policy, self.watching = folder, policy, Watching()
        self.got: list[Message] = []
        self.early: list[Message] = []

    def turn(self, at: float, *, killed: bool = False, sends: bool = True) -> list[str]:
        """Start anew, and return the steps and alerts of the messages; `killed` while it reads."""
        first = len(self.got)

        def meanwhile() -> None:
            if sends:
                self._send(at)
            self.early = self.early or self.got[first:]
            if killed:
                raise CutShort

        settings = Settings(files=(str(self.folder / "*.log"),), companions=False)
        self.watching.start(
            settings, self.folder / ".state", policies={SLACK: self.policy}, meanwhile=meanwhile
        )
        if killed:
            with pytest.raises(CutShort):
                self.watching.pump.turn(None, at)
        else:
            self.watching.pump.turn(None, at)
            self._send(at + 60)
        self.watching.kill()
        return [f"{each.step} {each.lead.alert} {each.lead.state}" for each in self.got[first:]]

    def _send(self, at: float) -> None:
        outbox = self.watching.outbox
        while (pending := outbox.due(SLACK, at)) is not None:
            self.got.append(pending.message)
            place = PLACE if isinstance(self.policy, Policy) else None
            outbox.accepted(pending, at, Receipt(place=place))


@pytest.fixture(params=[Policy(), StreamPolicy()], ids=["edited", "posted alone"])
def start(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Start]:
    monkeypatch.setattr("ldlm_monitor.service.daemon.backfill.SLICE_SECONDS", 0.0)
    monkeypatch.setenv("TZ", "UTC")
    return Start(tmp_path, request.param)


@pytest.mark.parametrize("name", ["alpha", "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"])
def test_a_nan_is_sent_at_once_and_the_judged_alert_takes_its_message(
    start: Start, name: str
) -> None:
    append(start.folder / f"{name}.log", steps(400, "NaN"), NOW + 3)
    sent = start.turn(NOW + 10)
    edited = ["update NonFiniteLoss firing"] if isinstance(start.policy, Policy) else []
    assert sent == ["first NonFiniteLoss firing", *edited]
    (early,) = start.early[0].news
    assert early.summary.endswith("(by the newest lines; the history before them is being read)")
    assert early.severity == "critical"
    if edited:
        assert start.got[-1].place == PLACE
        assert start.got[-1].lead.line_number == 400
        assert "newest lines" not in start.got[-1].lead.summary


@pytest.mark.parametrize("sends", [True, False])
def test_a_kill_between_both_sends_nothing_twice(start: Start, sends: bool) -> None:
    append(start.folder / "alpha.log", steps(400, "NaN"), NOW)
    start.turn(NOW + 10, killed=True, sends=sends)
    append(
        start.folder / "alpha.log",
        steps(1, "NaN", NOW + 15).replace("step 0", "step 400"),
        NOW + 15,
    )
    start.turn(NOW + 20, killed=True, sends=sends)
    start.turn(NOW + 30)
    start.turn(NOW + 40)
    assert [each.step for each in start.got].count("first") == 1
    assert {each.lead.alert for each in start.got} == {"NonFiniteLoss"}
    assert "follow-up" not in {each.step for each in start.got}


def test_what_the_history_does_not_confirm_is_closed_with_one_line(start: Start) -> None:
    append(log := start.folder / "alpha.log", steps(400, "NaN"), NOW)
    start.turn(NOW + 10, killed=True)
    log.unlink()  # training began anew, and overwrote its log
    append(log, steps(400), NOW + 15)
    start.turn(NOW + 20)
    closed = [each for message in start.got for each in message.news][-1]
    assert (closed.alert, closed.state, closed.reason) == ("NonFiniteLoss", "unknown", UNCONFIRMED)
    assert start.turn(NOW + 30) == []


@pytest.mark.parametrize(
    ("later", "written", "state"),
    [
        (steps(15, end=NOW + 15).replace("step ", "step 4"), 15, "resolved"),
        (CRASH + uploads(NOW + 60, NOW + 1200), 1140, "ended"),
    ],
    ids=["went on", "crashed"],
)
def test_what_is_over_since_has_the_end_that_its_history_shows(
    start: Start, later: str, written: float, state: str
) -> None:
    append(start.folder / "alpha.log", steps(400, "NaN"), NOW)
    start.turn(NOW + 10, killed=True)
    append(start.folder / "alpha.log", later, NOW + written)
    start.turn(NOW + written + 315)
    news = [each for message in start.got for each in message.news]
    first, over = [each for each in news if each.alert == "NonFiniteLoss"]
    assert (first.state, over.state, over.started_at) == ("firing", state, first.started_at)
    assert UNCONFIRMED not in over.summary + over.reason
    assert start.turn(NOW + written + 325) == []


def slow_steps(first: int, last: int) -> str:
    """One a minute, the last of them numbered 40 at `NOW`."""
    return "".join(
        f"{stamp(NOW - 60 * (40 - step))}step {step} loss 2.{step % 7}\n"
        for step in range(first, last + 1)
    )


@pytest.mark.parametrize(
    "text",
    [
        slow_steps(0, 10) + OUT_OF_MEMORY + slow_steps(11, 40),
        "step 1 loss 2.5\n" + OUT_OF_MEMORY + "step 2 loss 2.4\n",
        slow_steps(0, 20) + CRASH + uploads(NOW - 1200, NOW),
        slow_steps(0, 30) + WATCHDOG,
    ],
    ids=["survived", "survived without times", "crashed long ago", "stands at a time of long ago"],
)
def test_what_is_over_by_the_newest_lines_waits_for_the_history(start: Start, text: str) -> None:
    append(start.folder / "alpha.log", text, NOW)
    start.turn(NOW + 5)
    assert not start.early
    assert not any(each.reason == UNCONFIRMED for message in start.got for each in message.news)


def test_the_start_of_a_long_log_is_not_among_its_newest_lines(start: Start) -> None:
    text = steps(1, "NaN", NOW - 400) + steps(400) + CRASH
    append(start.folder / "alpha.log", text, NOW)
    start.turn(NOW + 5)
    assert {each.alert for message in start.early for each in message.news} == {"GpuError"}


@pytest.mark.parametrize("ago", [4000.0, 8000.0])
def test_a_failure_of_long_ago_is_not_sent(start: Start, ago: float) -> None:
    append(start.folder / "alpha.log", steps(400, "NaN"), NOW - ago)
    append(start.folder / "beta.log", steps(400), NOW)
    start.turn(NOW + 10)
    assert not start.early


def test_an_alert_that_was_sent_and_is_over_is_not_sent_again_by_the_same_lines(
    start: Start,
) -> None:
    append(start.folder / "alpha.log", steps(400, "NaN"), NOW)
    append(start.folder / "beta.log", steps(400), NOW)
    start.turn(NOW + 10)
    start.turn(NOW + 2500)
    before = len(start.got)
    start.turn(NOW + 2600)
    assert len(start.got) == before
