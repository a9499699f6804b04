"""Couriers bring everything, in order, through real trouble, and end when stopped."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from ldlm_monitor.base.errors import DeliveryError
from ldlm_monitor.service.notify.courier import Courier, Sender, stop_all
from ldlm_monitor.service.notify.message import Message, Notification, Receipt, to_json
from ldlm_monitor.service.notify.outbox import Outbox
from ldlm_monitor.service.notify.policy import Policy
from ldlm_monitor.service.notify.slack_bot import SlackBot
from ldlm_monitor.service.notify.slack_message import SlackWebhook
from tests.service.notify import slack_api as local


@contextmanager
def at_work(*couriers: Courier) -> Iterator[None]:
    for courier in couriers:
        courier.start()
    try:
        yield
    finally:
        for courier in couriers:
            assert courier.stop(timeout=10)


class Steered:
    """A receiver whose answers a test decides."""

    def __init__(self, name: str, answer: Callable[[Notification], None]) -> None:
        self.name = name
        self.answer = answer
        self.taken: list[str] = []
        self.changed = threading.Condition()

    def send(self, message: Message) -> Receipt:
        self.answer(message.lead)
        with self.changed:
            self.taken.append(message.lead.state)
            self.changed.notify_all()
        return Receipt()

    def wait_for(self, count: int) -> list[str]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.taken) >= count, timeout=20)
            return list(self.taken)


def accept(_: Notification) -> None:
    pass


def test_it_sends_what_was_there_and_what_is_added_while_it_sleeps(outbox, make_notification):
    receiver = Steered("slack", accept)
    outbox.add(make_notification(), ["slack"], 0.0)
    courier = Courier(receiver, outbox)
    with at_work(courier):
        assert receiver.wait_for(1) == ["firing"]
        outbox.add(make_notification(state="resolved"), ["slack"], 0.0)
        courier.wake()
        assert receiver.wait_for(2) == ["firing", "resolved"]


@pytest.mark.usefixtures("impatient")
def test_a_real_webhook_in_trouble_gets_everything_in_order(outbox, slack, make_notification):
    """500, 429 with Retry-After, and no answer at all, which may be a repeat; then the rest."""
    slack.answers += [(500, {}, b""), (429, {"Retry-After": "1"}, b""), "hang"]
    for state in ("firing", "resolved"):
        outbox.add(make_notification(state=state), ["slack"], 0.0)
    with at_work(Courier(SlackWebhook(slack.url), outbox)):
        sent = slack.wait_for(5)
    marks = [message["text"] for message in sent]
    assert marks == ["🔴 r1: NonFiniteLoss firing"] * 4 + ["✅ r1: NonFiniteLoss resolved"]
    assert outbox.counts() == {
        ("slack", "sent"): 2,
        ("slack", "retried"): 3,
        ("slack", "failed"): 0,
        ("slack", "repeated"): 1,
        ("slack", "pending"): 0,
    }


def test_a_receiver_that_hangs_stalls_no_other(outbox, make_notification):
    release = threading.Event()
    stuck = Steered("stuck", lambda _: release.wait() and None)
    quick = Steered("quick", accept)
    outbox.add(make_notification(), ["stuck", "quick"], 0.0)
    with at_work(Courier(stuck, outbox), Courier(quick, outbox)):
        quick.wait_for(1)
        assert stuck.taken == []
        release.set()


def test_one_that_is_refused_for_good_is_logged_and_the_next_goes_out(
    outbox, make_notification, caplog
):
    def refuse_firing(notification: Notification) -> None:
        if notification.state == "firing":
            raise DeliveryError("channel is archived", permanent=True)

    receiver = Steered("slack", refuse_firing)
    for state in ("firing", "resolved"):
        outbox.add(make_notification(state=state), ["slack"], 0.0)
    with at_work(Courier(receiver, outbox)):
        assert receiver.wait_for(1) == ["resolved"]
    assert "channel is archived" in caplog.text


def test_a_fault_of_ours_in_one_message_does_not_end_the_courier(outbox, make_notification, caplog):
    def stumble_once(notification: Notification) -> None:
        if notification.state == "firing":
            raise KeyError("a fault")

    receiver = Steered("slack", stumble_once)
    for state in ("firing", "resolved"):
        outbox.add(make_notification(state=state), ["slack"], 0.0)
    with at_work(Courier(receiver, outbox)):
        assert receiver.wait_for(1) == ["resolved"]
    assert outbox.counts()["slack", "failed"] == 1
    assert "a bug of the monitor" in caplog.text


def test_stop_sends_what_is_due_first(outbox, make_notification):
    receiver = Steered("slack", accept)
    courier = Courier(receiver, outbox)
    courier.start()
    for number in range(20):
        outbox.add(make_notification(started_at=float(number)), ["slack"], 0.0)
    assert courier.stop(timeout=20)
    assert len(receiver.taken) == 20


def test_all_senders_are_asked_to_end_before_any_is_waited_for(outbox):
    class Last(Sender):
        """Ends only once the other one has ended."""

        def turn(self) -> float:
            quick.join()
            return 1.0

    class Quick(Sender):
        def turn(self) -> float:
            return 60.0

    quick, last = Quick("quick", outbox), Last("last", outbox)
    for each in (last, quick):
        each.start()
    assert stop_all([last, quick], 10.0)


def test_stop_does_not_wait_for_a_receiver_that_hangs_or_for_the_next_attempt(
    outbox, make_notification
):
    asked, release = threading.Event(), threading.Event()

    def hang(_: Notification) -> None:
        asked.set()
        release.wait()

    courier = Courier(Steered("slack", hang), outbox)
    outbox.add(make_notification(), ["slack"], 0.0)
    courier.start()
    assert asked.wait(20)
    assert not courier.stop(timeout=0.05)
    release.set()
    courier.join(20)
    assert outbox.counts()["slack", "sent"] == 1


def test_a_courier_left_behind_ends_quietly_when_the_outbox_is_closed(tmp_path, make_notification):
    """pytest turns an exception of a thread into a failure."""
    asked, release = threading.Event(), threading.Event()

    def hang(_: Notification) -> None:
        asked.set()
        release.wait()

    box = Outbox(tmp_path / "outbox.db")
    box.add(make_notification(), ["slack"], 0.0)
    courier = Courier(Steered("slack", hang), box)
    courier.start()
    assert asked.wait(20)
    courier.stop(timeout=0.05)
    box.close()
    release.set()
    courier.join(20)
    assert not courier.is_alive()


ADDS_AND_DIES = """
import os, signal, sys
from pathlib import Path
from ldlm_monitor.service.notify.message import Notification, from_json
from ldlm_monitor.service.notify.outbox import Outbox

box = Outbox(Path(sys.argv[1]))
for text in sys.argv[2:]:
    box.add(from_json(Notification, text), ["slack"], 1.0)
os.kill(os.getpid(), signal.SIGKILL)
"""

DIES_WHILE_SENDING = """
import os, signal, sys
from pathlib import Path
from ldlm_monitor.service.notify.courier import Courier
from ldlm_monitor.service.notify.message import Notification, from_json
from ldlm_monitor.service.notify.outbox import Outbox
from ldlm_monitor.service.notify.slack_message import SlackWebhook

class DiesAfterTheAnswer(SlackWebhook):
    def send(self, message):
        super().send(message)
        os.kill(os.getpid(), signal.SIGKILL)

box = Outbox(Path(sys.argv[1]))
box.add(from_json(Notification, sys.argv[2]), ["slack"], 1.0)
Courier(DiesAfterTheAnswer(sys.argv[3]), box).run()
"""


def killed(script: str, *arguments: str) -> bool:
    process = subprocess.run([sys.executable, "-c", script, *arguments], check=False)
    return process.returncode == -signal.SIGKILL


def test_a_picture_without_the_scope_is_left_out_with_a_line(tmp_path, make_notification, caplog):
    box = Outbox(tmp_path / "outbox.db", {"slack": Policy()})
    box.add(make_notification(), ["slack"], 0.0)
    with local.slack_api() as api:
        api.answers += [None, "missing_scope"]
        bot = SlackBot(local.TOKEN, local.CHANNEL, api_url=api.url)
        bot.draw = lambda _: b"\x89PNG"
        with at_work(Courier(bot, box)):
            api.wait_for(lambda: len(api.calls) == 2)
    assert box.counts()["slack", "sent"] == 1
    assert "a picture was left out: slack refused it: missing_scope" in caplog.text
    box.close()


@pytest.mark.live
def test_killed_before_sending_it_sends_after_the_restart(tmp_path, slack, make_notification):
    path = tmp_path / "outbox.db"
    firing, resolved = make_notification(), make_notification(state="resolved")
    assert killed(ADDS_AND_DIES, str(path), to_json(firing), to_json(resolved))
    box = Outbox(path)
    assert box.due("slack", 2.0).message.lead.key == firing.key
    with at_work(Courier(SlackWebhook(slack.url), box)):
        sent = slack.wait_for(2)
    assert ["firing" in sent[0]["text"], "resolved" in sent[1]["text"]] == [True, True]
    assert box.counts()["slack", "sent"] == 2
    assert not box.add(firing, ["slack"], 3.0)
    box.close()


@pytest.mark.live
def test_killed_between_answer_and_commit_it_sends_again_and_counts_it(
    tmp_path, slack, make_notification
):
    path = tmp_path / "outbox.db"
    assert killed(DIES_WHILE_SENDING, str(path), to_json(make_notification()), slack.url)
    box = Outbox(path)
    with at_work(Courier(SlackWebhook(slack.url), box)):
        first, second = slack.wait_for(2)
    assert first == second
    assert box.counts()["slack", "repeated"] == 1
    assert box.counts()["slack", "sent"] == 1
    box.close()


class Paced(Steered):
    """A receiver that notes when it got what."""

    def __init__(self) -> None:
        super().__init__("slack", accept)
        self.times: list[float] = []

    def send(self, message: Message) -> Receipt:
        self.times.append(time.monotonic())
        return super().send(message)


def test_a_channel_of_people_gets_no_two_posts_within_its_pace(tmp_path, make_notification):
    receiver = Paced()
    box = Outbox(tmp_path / "outbox.db", {"slack": Policy()})
    for number in range(4):
        box.add(make_notification(f"Alert{number}", run=f"r{number}"), ["slack"], 0.0)
    with at_work(Courier(receiver, box, pace=0.1)):
        receiver.wait_for(4)
    box.close()
    gaps = [after - before for before, after in pairwise(receiver.times)]
    assert all(gap >= 0.1 for gap in gaps)


def test_at_the_end_all_goes_at_once_whatever_the_pace(tmp_path, make_notification):
    receiver = Paced()
    box = Outbox(tmp_path / "outbox.db", {"slack": Policy()})
    for number in range(3):
        box.add(make_notification(f"Alert{number}", run=f"r{number}"), ["slack"], 0.0)
    courier = Courier(receiver, box, pace=600.0)
    courier.start()
    receiver.wait_for(1)
    assert courier.stop(timeout=20)
    assert len(receiver.taken) == 3
    box.close()


def test_a_storm_of_a_thousand_alerts_of_a_run_is_three_posts_at_most(tmp_path, make_notification):
    box = Outbox(tmp_path / "outbox.db", {"slack": Policy()})
    with local.slack_api() as api:
        bot = SlackBot(local.TOKEN, local.CHANNEL, api_url=api.url)
        bot.draw = lambda _: b"\x89PNG"
        with at_work(courier := Courier(bot, box)):
            for rank in range(1000):
                made = make_notification("NcclTimeout", rank=str(rank), key=f"k{rank}")
                box.add(made, ["slack"], time.time())
                courier.wake()
            api.wait_for(lambda: bool(api.shared))
        assert len(api.messages) + len(api.shared) <= 3
        arrived = [alert for each in api.messages.values() for alert in local.named(each["first"])]
        assert sorted(arrived) == [("r1", rank) for rank in range(1000)]
    box.close()
