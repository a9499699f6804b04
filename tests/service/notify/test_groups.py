"""Alerts that are sent together: the first at once, what follows in one message, nothing lost."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.errors import DeliveryError
from ldlm_monitor.base.incident_view import IncidentView, RootView
from ldlm_monitor.service.notify.content import news_of, whole_of
from ldlm_monitor.service.notify.groups import MANY_SECONDS
from ldlm_monitor.service.notify.message import (
    FLAPPING,
    Message,
    Notification,
    Receipt,
    from_transition,
)
from ldlm_monitor.service.notify.outbox import Outbox
from ldlm_monitor.service.notify.policy import Policy, StreamPolicy

NOON = 1_700_049_600.0
"""2023-11-15 12:00 UTC."""
FOLLOW_UP = Policy().follow_up_seconds
"""Seconds between two messages of a group."""


class Channel:
    """A receiver of groups over an outbox, at a time that the test sets."""

    def __init__(self, path: Path, make: Callable[..., Notification], policy: Policy) -> None:
        self.path = path
        self.make = make
        self.policy = policy
        self.outbox = self.opened()
        self.now = NOON
        self.starts: dict[tuple[str, str], float] = {}

    def add(self, alert: str = "NonFiniteLoss", state: str = "firing", **changes: object) -> None:
        run = changes.get("run", "r1")
        fields = {
            "key": f"{alert}{{run={run},rank={changes.get('rank')}}}",
            "started_at": self.now if state == "firing" else self.starts[alert, run],
            "at": self.now,
            "labels": {"run": run, "severity": changes.get("severity", "critical")},
            **changes,
        }
        self.starts[alert, run] = fields["started_at"]
        made = self.make(alert, state=state, **fields)
        self.outbox.add(made, ["slack", "webhook"], self.now)

    def sent(self, place: str | None = None, receiver: str = "slack") -> list[Message]:
        """What is due now, all accepted."""
        messages = []
        while (pending := self.outbox.due(receiver, self.now)) is not None:
            messages.append(pending.message)
            self.outbox.accepted(pending, self.now, Receipt(place))
        return messages

    def restart(self) -> None:
        self.outbox.close()
        self.outbox = self.opened()

    def opened(self) -> Outbox:
        fields = {name: getattr(self.policy, name) for name in StreamPolicy.model_fields}
        single = StreamPolicy.model_construct(**fields)
        return Outbox(self.path, {"slack": self.policy, "webhook": single})


@pytest.fixture
def channel(tmp_path, make_notification) -> Iterator[Callable[..., Channel]]:
    made = []

    def make(**policy: object) -> Channel:
        path = tmp_path / "outbox.sqlite"
        made.append(Channel(path, make_notification, Policy.model_validate(policy)))
        return made[-1]

    yield make
    for each in made:
        each.outbox.close()


def names(message: Message) -> list[str]:
    return [f"{each.alert} {each.state}" for each in message.news]


def test_the_first_alert_is_sent_at_once_and_what_follows_together(channel):
    slack = channel()
    slack.add()
    (first,) = slack.sent()
    assert (first.step, names(first)) == ("first", ["NonFiniteLoss firing"])
    slack.now += 1
    slack.add("TrainingCrashed")
    slack.add("NcclTimeout")
    slack.add("NonFiniteLoss", "resolved")
    slack.now = NOON + FOLLOW_UP - 0.5
    assert slack.sent() == []
    slack.now = NOON + FOLLOW_UP
    (second,) = slack.sent()
    assert second.step == "follow-up"
    assert names(second) == [
        "TrainingCrashed firing", "NcclTimeout firing", "NonFiniteLoss resolved",
    ]  # fmt: skip
    assert [each.alert for each in second.firing] == ["TrainingCrashed", "NcclTimeout"]


def test_a_storm_of_a_thousand_alerts_of_a_run_is_two_messages_that_hold_all(channel):
    slack = channel()
    messages = []
    for number in range(1000):
        slack.now = NOON + number / 1000
        slack.add("NonFiniteLoss", rank=str(number), incident="r1/1" if number > 300 else None)
        messages += slack.sent()
    slack.now = NOON + FOLLOW_UP + 2
    messages += slack.sent()
    assert len(messages) == 2
    assert sum(len(message.news) for message in messages) == 1000
    assert len(messages[-1].alerts) == 1000


def test_another_run_is_sent_at_once(channel):
    slack = channel()
    slack.add(run="r1")
    slack.add("TrainingCrashed", run="r2")
    assert [message.news[0].run for message in slack.sent()] == ["r1", "r2"]


def test_the_same_alert_of_many_runs_within_seconds_is_one_message(channel):
    slack = channel()
    for number in range(167):
        slack.add("TrainingStalled", run=f"run{number:03}")
        slack.now += 0.001
    (message,) = slack.sent()
    assert len(message.alerts) == 167
    assert whole_of(message).title == news_of(message).title
    assert news_of(message).title == ("167 runs stalled within 1s: storage, or the monitor itself")


def test_of_many_stalls_no_cause_is_guessed_where_one_is_seen_to_hang(channel):
    slack = channel()
    for number in range(5):
        slack.add("TrainingStalled", run=f"r{number}", verdict="hung" if number == 2 else "silent")
    (message,) = slack.sent()
    assert news_of(message).title == "5 runs stalled within 1s"


def test_of_an_alert_of_many_runs_the_first_two_are_sent_at_once_and_others_together(channel):
    slack = channel()
    slack.add("NonFiniteLoss", run="a")
    assert [each.step for each in slack.sent()] == ["first"]
    slack.now += 3
    slack.add("NonFiniteLoss", run="b")
    (second,) = slack.sent()
    assert news_of(second).title == "2 runs with a loss of NaN within 3s: a, b"
    slack.now += 2
    for run in ("c", "d", "e"):
        slack.add("NonFiniteLoss", run=run)
    assert slack.sent() == []
    slack.now += MANY_SECONDS
    (all_,) = slack.sent()
    assert news_of(all_).title.startswith("5 runs with a loss of NaN")
    for run in ("a", "b", "c", "d", "e"):
        slack.add("NonFiniteLoss", run=run, state="resolved")
    slack.now += FOLLOW_UP
    assert [news_of(each).title for each in slack.sent()] == ["5 runs with a finite loss again"]


def crashed(run: str, kind: str, message: str) -> IncidentView:
    found = incident(id=f"{run}/1", run=run)
    root = found.root.model_copy(update={"kind": kind, "message": message})
    return found.model_copy(update={"root": root})


def test_crashes_of_two_causes_are_two_messages_and_those_of_one_are_one(channel):
    slack = channel()
    slack.outbox.update_incidents(
        [
            crashed("a", "cuda_oom", "CUDA out of memory. Tried to allocate 2 GiB"),
            crashed("b", "python_exception", "KeyError: 'x'"),
            crashed("c", "cuda_oom", "CUDA out of memory. Tried to allocate 4 GiB"),
        ],
        slack.now,
    )
    titles = []
    for run in "abc":
        slack.add("TrainingCrashed", run=run, incident=f"{run}/1")
        titles += [news_of(each).title for each in slack.sent()]
        slack.now += 2
    assert titles == [
        "a: out of GPU memory at step 1, rank 3",
        "b: KeyError: 'x' at step 1, rank 3",
        "2 runs crashed within 4s: out of GPU memory (a, c)",
    ]


def test_crashes_of_causes_that_are_not_known_are_messages_of_their_own(channel):
    slack = channel()
    slack.outbox.update_incidents(
        [crashed(run, "", "").model_copy(update={"confidence": "none"}) for run in "ab"], slack.now
    )
    for run in "ab":
        slack.add("TrainingCrashed", run=run, incident=f"{run}/1")
    assert [len(each.alerts) for each in slack.sent()] == [1, 1]


def test_an_alert_of_another_run_a_minute_later_is_a_failure_of_its_own(channel):
    slack = channel()
    slack.add(run="a")
    slack.sent()
    slack.now += 60
    slack.add(run="b")
    (other,) = slack.sent()
    assert other.step == "first"
    assert not other.is_of_many


def test_other_alerts_of_one_of_many_runs_are_messages_of_their_own(channel):
    slack = channel()
    for run in ("a", "b", "c"):
        slack.add("TrainingStalled", run=run)
    slack.sent()
    slack.now += 120
    slack.add("TrainingCrashed", run="b")
    (own,) = slack.sent()
    assert (own.step, [each.run for each in own.alerts]) == ("first", ["b"])


def test_the_end_of_a_run_is_sent_at_once_and_once_if_it_ran_long_enough(channel):
    slack = channel()
    ended = {"severity": "info", "labels": {"severity": "info"}}
    slack.add("RunFinished", run="short", value=599.0, **ended)
    slack.add("RunFinished", run="timeless", value=0.0, **ended)
    assert slack.sent() == []
    slack.add("RunFinished", run="long", value=11520.0, **ended)
    assert [names(each) for each in slack.sent()] == [["RunFinished firing"]]
    slack.now += 900
    over = {"state": "ended", "reason": "run ended"}
    slack.add("RunFinished", run="long", value=11520.0, **over, **ended)
    slack.now += 7 * 86400
    assert slack.sent() == []


@pytest.mark.parametrize(
    ("state", "reason"), [("resolved", "no longer true"), ("ended", "restarted")]
)
def test_that_a_run_goes_on_after_its_end_is_sent_to_who_got_the_end(channel, state, reason):
    slack = channel()
    ended = {"severity": "info", "labels": {"severity": "info"}, "value": 11520.0}
    slack.add("RunFinished", **ended)
    (first,) = slack.sent()
    slack.now += 120
    line = "🔵 r1: goes on after its end (step 101)"
    said = {"summary": "r1 finished after 3h 12m", "description": "It has finished."}
    over = {"state": state, "reason": reason, "headline": line, **said}
    slack.add("RunFinished", **over, **ended)
    (second,) = slack.sent()
    assert (second.step, second.group) == ("follow-up", first.group)
    mark, text = line.split(" ", 1)
    assert (news_of(second).mark, news_of(second).title) == (mark, text)
    assert "finished" not in repr(news_of(second)).replace("RunFinished", "")
    slack.starts["RunFinished", "r2"] = slack.now - 1
    slack.add("RunFinished", run="r2", **over, **ended)
    slack.now += FOLLOW_UP
    assert slack.sent() == []


def test_an_end_beside_trouble_of_the_run_is_not_counted_as_more_of_it(channel):
    slack = channel()
    slack.add("NonFiniteLoss", headline="🔴 r1: loss NaN")
    slack.add("RunFinished", value=11520.0, severity="info", labels={"severity": "info"})
    (both,) = slack.sent()
    assert news_of(both).title == "r1: loss NaN"


def test_who_asks_for_warnings_alone_gets_no_end_of_a_run(channel):
    slack = channel(min_severity="warning")
    labels = {"severity": "info"}
    slack.add("RunFinished", value=11520.0, severity="info", labels=labels)
    assert slack.sent() == []


def test_alerts_of_another_incident_of_the_run_are_a_message_of_their_own_at_once(channel):
    slack = channel()
    slack.add("NonFiniteLoss", incident="r1/1")
    slack.sent()
    slack.now += 300
    slack.add("TrainingCrashed", incident="r1/2")
    (other,) = slack.sent()
    assert other.step == "first"


def test_an_incident_that_opens_soon_after_the_first_alert_is_sent_with_it(channel):
    slack = channel()
    slack.add("ThroughputDrop")
    (first,) = slack.sent()
    slack.now += 40
    slack.add("TrainingCrashed", incident="r1/1")
    (second,) = slack.sent()
    assert (second.group, second.step) == (first.group, "follow-up")


def test_an_alert_without_incident_belongs_to_what_goes_on_in_its_run(channel):
    slack = channel()
    slack.add("TrainingStalled", incident="r1/1")
    (first,) = slack.sent()
    slack.now += 3000
    slack.add("CheckpointStale")
    (second,) = slack.sent()
    assert second.group == first.group


def test_the_end_of_an_alert_is_in_the_group_of_its_beginning(channel):
    slack = channel()
    slack.add("NonFiniteLoss", incident="r1/1")
    (first,) = slack.sent()
    slack.now += 60
    slack.add("NonFiniteLoss", "resolved", incident="r1/2")
    (second,) = slack.sent()
    assert second.group == first.group
    assert second.firing == ()


def test_what_comes_back_after_its_end_goes_on_in_its_group_for_a_while(channel):
    slack = channel()
    groups = []
    for pause in (60, 60, 3000):
        slack.add()
        slack.now += FOLLOW_UP
        slack.sent()
        slack.add("NonFiniteLoss", "resolved")
        slack.now += 3600
        slack.now -= 3600 - pause
        groups += [message.group for message in slack.sent()]
        slack.now += pause
    slack.now += 3000
    slack.add()
    (late,) = slack.sent()
    assert groups[0] == groups[1]
    assert late.group != groups[0]


def test_an_alert_that_flaps_is_sent_less_and_less_often(channel):
    slack = channel()
    messages = []
    for _ in range(180):
        slack.add()
        slack.now += 10
        messages += slack.sent()
        slack.add("NonFiniteLoss", "resolved")
        slack.now += 10
        messages += slack.sent()
    assert len(messages) <= 8, "of 360 transitions within an hour"
    assert messages[-1].flaps > FLAPPING
    slack.now += 3600
    messages += slack.sent()
    assert sum(len(message.news) for message in messages) == 360


def test_what_fires_still_is_sent_again_after_the_repeat_interval(channel):
    slack = channel(repeat_interval_seconds=3600)
    slack.add()
    slack.sent()
    slack.now += 3599
    assert slack.sent() == []
    slack.now += 1
    (again,) = slack.sent()
    assert (again.step, again.news) == ("repeat", ())
    assert [each.alert for each in again.firing] == ["NonFiniteLoss"]
    slack.add("NonFiniteLoss", "resolved")
    slack.now += FOLLOW_UP
    slack.sent()
    slack.now += 7200
    assert slack.sent() == []


def test_info_waits_for_the_digest(channel):
    slack = channel()
    for run in ("r1", "r2"):
        slack.add("LossPlateau", run=run, severity="info")
    assert slack.sent() == []
    slack.now += 3600
    (digest,) = slack.sent()
    assert [each.run for each in digest.news] == ["r1", "r2"]


def test_info_is_sent_as_all_others_without_a_digest(channel):
    slack = channel(digest_seconds=0)
    slack.add("LossPlateau", severity="info")
    assert [names(message) for message in slack.sent()] == [["LossPlateau firing"]]


def test_a_digest_is_repeated_a_day_later_at_the_earliest(channel):
    slack = channel(repeat_interval_seconds=3600)
    slack.add("LossPlateau", severity="info")
    slack.now += 3600
    assert [message.step for message in slack.sent()] == ["first"]
    slack.now += 86399
    assert slack.sent() == []
    slack.now += 1
    assert [message.step for message in slack.sent()] == ["repeat"]


@pytest.mark.parametrize("receiver", ["slack", "webhook"])
def test_a_receiver_gets_what_its_policy_accepts(channel, receiver):
    slack = channel(matchers=["run=r1"], min_severity="error")
    slack.add(run="r2")
    slack.add(severity="warning")
    assert slack.sent(receiver=receiver) == []
    slack.add("TrainingCrashed", severity="error")
    assert len(slack.sent(receiver=receiver)) == 1


QUIET = {"quiet_hours": "12:00-13:00"}
LESS = {"severity": "error"}


@pytest.mark.parametrize("receiver", ["slack", "webhook"])
def test_in_quiet_hours_all_but_critical_alerts_wait_until_they_end(channel, receiver):
    slack = channel(**QUIET)
    slack.add("LossSpike", **LESS)
    slack.add("TrainingCrashed", run="r2")
    (urgent,) = slack.sent(receiver=receiver)
    assert urgent.news[0].run == "r2"
    slack.now += 3590
    assert slack.sent(receiver=receiver) == []
    slack.restart()
    slack.now += 10
    assert slack.sent(receiver=receiver) == [], "the logs were not read again yet"
    slack.add("LossSpike", **LESS, started_at=NOON, at=NOON)
    assert len(slack.sent(receiver=receiver)) == 1


@pytest.mark.parametrize("receiver", ["slack", "webhook"])
def test_quiet_hours_keep_critical_alerts_back_where_that_is_asked_for(channel, receiver):
    slack = channel(**QUIET, quiet_max_severity="critical")
    slack.add("TrainingCrashed")
    assert slack.sent(receiver=receiver) == []
    slack.now += 3600
    assert len(slack.sent(receiver=receiver)) == 1


@pytest.mark.parametrize("receiver", ["slack", "webhook"])
def test_what_began_and_ended_within_quiet_hours_is_sent_to_nobody(channel, receiver):
    slack = channel(**QUIET)
    slack.add(**LESS)
    assert slack.sent(receiver=receiver) == []
    slack.now += 60
    slack.add("NonFiniteLoss", "resolved", **LESS)
    slack.sent(receiver=receiver)
    slack.now += 3600
    assert slack.sent(receiver=receiver) == []
    assert slack.outbox.counts()[receiver, "withheld"] == 2


def test_an_alert_held_in_quiet_hours_is_sent_after_them_though_its_group_has_ended(channel):
    slack = channel(**QUIET)
    slack.add()
    slack.add("DiskSlow", severity="error")
    (first,) = slack.sent("C1 1.0")
    assert names(first) == ["NonFiniteLoss firing"]
    slack.now += FOLLOW_UP
    slack.add(state="resolved")
    assert names(slack.sent()[0]) == ["NonFiniteLoss resolved"]
    slack.now += 3600
    held = slack.sent()[0]
    assert names(held) == ["DiskSlow firing"]
    assert held.place is None, "a reply in the thread of what has ended would not be seen"


@pytest.mark.parametrize("receiver", ["slack", "webhook"])
def test_the_end_of_what_was_sent_before_quiet_hours_is_sent_after_them(channel, receiver):
    slack = channel(**QUIET)
    slack.now -= 60
    slack.add(**LESS)
    assert len(slack.sent(receiver=receiver)) == 1
    slack.now += 120
    slack.add("NonFiniteLoss", "resolved", **LESS)
    assert slack.sent(receiver=receiver) == []
    slack.now += 3600
    assert len(slack.sent(receiver=receiver)) == 1


def test_nothing_that_waits_in_quiet_hours_is_repeated_in_them(channel):
    slack = channel(**QUIET, repeat_interval_seconds=600)
    slack.now -= 60
    slack.add(**LESS)
    slack.sent()
    slack.now += 3600
    assert slack.sent() == []
    slack.now += 120
    assert [message.step for message in slack.sent()] == ["repeat"]


@pytest.mark.parametrize("receiver", ["slack", "webhook"])
def test_what_waited_is_sent_where_the_quiet_hours_were_removed_meanwhile(channel, receiver):
    slack = channel(**QUIET)
    slack.add(**LESS)
    assert slack.sent(receiver=receiver) == []
    slack.policy = Policy()
    slack.restart()
    slack.add(**LESS)
    assert len(slack.sent(receiver=receiver)) == 1


def test_a_receiver_that_is_down_for_an_hour_gets_all_in_few_messages(channel):
    slack = channel()
    for minute in range(60):
        slack.add("RankStraggling", rank=str(minute))
        while (pending := slack.outbox.due("slack", slack.now)) is not None:
            slack.outbox.failed(pending, DeliveryError("down"), slack.now)
        slack.now += 60
    slack.now += 300
    (message,) = slack.sent()
    assert len(message.news) == 60


def test_what_may_have_arrived_is_sent_again_as_it_was_and_what_came_since_behind_it(channel):
    slack = channel()
    slack.add("NonFiniteLoss")
    pending = slack.outbox.due("slack", slack.now)
    slack.outbox.failed(pending, DeliveryError("timed out", unsure=True), slack.now)
    slack.add("TrainingCrashed")
    slack.now += 60
    again = slack.outbox.due("slack", slack.now)
    assert again.message.unsure
    assert again.message.identity == pending.message.identity
    assert names(again.message) == ["NonFiniteLoss firing"]
    slack.outbox.accepted(again, slack.now, Receipt(found=True))
    slack.now += FOLLOW_UP
    (rest,) = slack.sent()
    assert names(rest) == ["TrainingCrashed firing"]
    assert slack.outbox.counts()["slack", "repeated"] == 0


def test_what_may_have_arrived_stays_so_when_the_next_attempt_was_surely_in_vain(channel):
    """It is looked for before it is sent again, and counted as a repeat if it is not found."""
    slack = channel()
    slack.add("NonFiniteLoss")
    for error in (DeliveryError("timed out", unsure=True), DeliveryError("busy")):
        slack.outbox.failed(slack.outbox.due("slack", slack.now), error, slack.now)
        slack.now += 60
    slack.add("TrainingCrashed")
    again = slack.outbox.due("slack", slack.now)
    assert again.message.unsure
    assert names(again.message) == ["NonFiniteLoss firing"]
    slack.outbox.accepted(again, slack.now, Receipt())
    assert slack.outbox.counts()["slack", "repeated"] == 1


def test_what_surely_did_not_arrive_is_sent_with_what_came_since_and_is_no_repeat(channel):
    slack = channel()
    slack.add("NonFiniteLoss")
    pending = slack.outbox.due("slack", slack.now)
    slack.outbox.failed(pending, DeliveryError("busy"), slack.now)
    slack.add("TrainingCrashed")
    slack.now += 60
    (message,) = slack.sent()
    assert not message.unsure
    assert names(message) == ["NonFiniteLoss firing", "TrainingCrashed firing"]
    assert slack.outbox.counts()["slack", "repeated"] == 0


def test_a_clock_that_was_set_back_delays_no_group_by_more_than_its_interval(channel):
    slack = channel()
    slack.add("NonFiniteLoss")
    slack.sent()
    slack.now += 1
    slack.add("TrainingCrashed")
    slack.now -= 86_400
    (message,) = slack.sent()
    assert names(message) == ["TrainingCrashed firing"]


def test_a_group_that_waits_within_its_interval_goes_on_waiting(channel):
    """Its moment is at most one interval ahead, which is no sign that the clock was set back."""
    slack = channel(digest_seconds=30)
    slack.add("LossPlateau", severity="info")
    assert slack.sent() == []
    slack.now -= 1
    assert [names(message) for message in slack.sent()] == [["LossPlateau firing"]]


def test_a_clock_that_was_set_back_delays_no_change_of_what_stands_there(channel):
    slack = channel()
    slack.add("NonFiniteLoss")
    slack.sent(place="C1 17.5")
    slack.now += FOLLOW_UP
    slack.add("TrainingCrashed")
    assert [message.step for message in slack.sent()] == ["follow-up", "update"]
    slack.add("NcclTimeout")
    slack.now -= 86_400
    assert [message.step for message in slack.sent()] == ["follow-up", "update"]


def test_a_restart_between_request_and_answer_repeats_one_message_and_counts_it(channel):
    slack = channel()
    slack.add("NonFiniteLoss")
    slack.add("TrainingCrashed")
    before = slack.outbox.due("slack", slack.now)
    slack.restart()
    (again,) = slack.sent()
    assert again.unsure
    assert names(again) == names(before.message)
    assert again.identity == before.message.identity
    assert slack.outbox.counts()["slack", "repeated"] == 2


def test_a_message_that_is_refused_for_good_is_counted_and_the_group_goes_on(channel):
    slack = channel()
    slack.add("NonFiniteLoss")
    pending = slack.outbox.due("slack", slack.now)
    slack.outbox.failed(pending, DeliveryError("invalid", permanent=True), slack.now)
    assert slack.sent() == []
    assert slack.outbox.counts()["slack", "failed"] == 1
    slack.now += FOLLOW_UP
    slack.add("TrainingCrashed")
    (message,) = slack.sent()
    assert names(message) == ["TrainingCrashed firing"]


def test_a_group_whose_last_news_were_refused_for_good_has_ended(channel):
    slack = channel()
    slack.add()
    slack.sent("C1 1.0")
    slack.now += FOLLOW_UP
    slack.add(state="resolved")
    pending = slack.outbox.due("slack", slack.now)
    assert pending is not None
    slack.outbox.failed(pending, DeliveryError("refused", permanent=True), slack.now)
    slack.now += 86_400
    slack.add("DiskSlow")
    assert [message.step for message in slack.sent()] == ["first"]


def test_groups_wait_no_longer_when_the_monitor_ends(channel):
    slack = channel()
    slack.add()
    slack.sent()
    slack.add("TrainingCrashed")
    assert slack.outbox.due("slack", slack.now) is None
    assert names(slack.outbox.due("slack", slack.now, last=True).message) == [
        "TrainingCrashed firing"
    ]


def test_the_end_of_the_monitor_does_not_end_quiet_hours(channel):
    slack = channel(**QUIET)
    slack.add(**LESS)
    assert slack.outbox.due("slack", slack.now, last=True) is None


def test_where_a_message_stands_is_known_after_a_restart(channel):
    slack = channel()
    slack.add()
    slack.sent(place="C1 17.5")
    slack.restart()
    slack.now += FOLLOW_UP
    slack.add("TrainingCrashed")
    follow_up, *rest = slack.sent()
    assert follow_up.place == "C1 17.5"
    assert [message.step for message in rest] == ["update"]


def crash() -> Transition:
    return Transition(
        time=NOON, alert="TrainingCrashed", state="firing", previous="inactive", reason="",
        labels={"run": "r1", "severity": "critical"}, value=1.0, active_at=NOON,
    )  # fmt: skip


def incident(**changes: object) -> IncidentView:
    root = RootView(
        tier="local", kind="cuda_oom", message="CUDA out of memory", rank=3, ranks="3", node=None,
        host=None, local_rank=None, pid=None, at=NOON, position=None, why=(),
    )  # fmt: skip
    fields = {
        "id": "r1/1", "run": "r1", "state": "open", "ended_reason": "", "title": "it began",
        "confidence": "probable", "opened_at": NOON, "updated_at": NOON, "ended_at": None,
        "root": root, "collective": None, "symptoms": (), "events": 1, "claims": (),
        "excerpt": (), "action": "", "last_step": 1, "alerts": (), **changes,
    }  # fmt: skip
    return IncidentView(**fields)


def test_a_message_that_stands_somewhere_follows_its_incident(channel):
    slack = channel()
    slack.add(incident="r1/1")
    slack.sent(place="C1 17.5")
    assert slack.outbox.update_incidents([incident()], slack.now)
    assert not slack.outbox.update_incidents([incident()], slack.now), "nothing new"
    (update,) = slack.sent()
    assert (update.step, update.story.title) == ("update", "it began")
    slack.outbox.update_incidents([incident(title="rank 3 ran out of memory")], slack.now)
    assert slack.sent() == [], "not at every change"
    slack.now += 5
    (update,) = slack.sent()
    assert update.story.title == "rank 3 ran out of memory"
    slack.restart()
    slack.outbox.update_incidents([incident(title="rank 3 ran out of memory")], slack.now)
    slack.now += 5
    assert slack.sent() == [], "it says so already"


def test_a_secret_of_an_incident_is_not_kept(channel):
    slack = channel()
    slack.add(incident="r1/1")
    slack.sent(place="C1 17.5")
    key = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
    slack.outbox.update_incidents([incident(title=f"login with {key} failed")], slack.now)
    (update,) = slack.sent()
    assert "hf_AbC" not in update.story.title


def test_what_was_added_before_changes_nothing(channel):
    slack = channel()
    slack.add()
    slack.sent()
    slack.add()
    slack.now += 3600
    assert slack.sent() == []


def flap(slack):
    for _ in range(40):
        for state in ("firing", "resolved"):
            slack.add("LossSpike", state, severity="warning")
            slack.now += 10
            slack.sent()


def test_no_other_alert_waits_for_one_that_flaps(channel):
    slack = channel()
    flap(slack)
    slack.add("TrainingCrashed")
    slack.now += FOLLOW_UP
    (message,) = slack.sent()
    assert "TrainingCrashed firing" in names(message)


def test_one_that_flaps_does_not_delay_another_alert_that_waits(channel):
    slack = channel()
    flap(slack)
    slack.add("TrainingCrashed")
    slack.add("LossSpike", severity="warning")
    slack.now += FOLLOW_UP
    (message,) = slack.sent()
    assert names(message)[-2:] == ["TrainingCrashed firing", "LossSpike firing"]


def test_what_is_not_known_to_fire_any_more_is_not_repeated(channel):
    """As after a restart without the run's logs; `note` says what fires."""
    slack = channel(repeat_interval_seconds=3600)
    slack.outbox.note(from_transition(crash()))
    slack.add("TrainingCrashed", key=crash().key)
    slack.sent()
    slack.restart()
    slack.now += 3600
    assert slack.sent() == []
    slack.outbox.note(from_transition(crash()))
    slack.now += 60
    assert [message.step for message in slack.sent()] == ["repeat"]


def test_an_update_that_is_refused_for_good_costs_no_alert(tmp_path, make_notification):
    """The other group's alert waits for the end of quiet hours meanwhile."""
    policy = Policy(quiet_hours="12:00-13:00")
    box = Outbox(tmp_path / "outbox.sqlite", {"slack": policy})
    for run, severity in (("r2", "critical"), ("r1", "error")):
        alert = "NonFiniteLoss" if run == "r1" else "TrainingCrashed"
        made = make_notification(alert, run=run, incident=f"{run}/1", severity=severity)
        box.add(made, ["slack"], NOON)
    box.accepted(box.due("slack", NOON), NOON, Receipt("C1 17.5"))
    box.update_incidents([incident(run="r2", id="r2/1")], NOON)
    update = box.due("slack", NOON)
    assert update.message.step == "update"
    box.failed(update, DeliveryError("never", permanent=True), NOON)
    assert box.counts()["slack", "failed"] == 0
    assert names(box.due("slack", NOON + 3600).message) == ["NonFiniteLoss firing"]
    box.close()


def test_an_end_for_two_receivers_leaves_other_failures_of_the_run_alone(
    tmp_path, make_notification
):
    """A later alert is a failure of its own, also where the end of the first came meanwhile."""
    box = Outbox(tmp_path / "outbox.sqlite", {"slack": Policy(), "apprise": Policy()})
    first = make_notification("NonFiniteLoss")
    other = make_notification("TrainingCrashed", incident="r1/2")
    sent = {"slack": [], "apprise": []}
    for now, each in (
        (0, first),
        (300, other),
        (400, replace(other, state="ended")),
        (900, replace(first, state="ended")),
        (1600, make_notification("CheckpointStale")),
    ):
        box.add(each, ["slack", "apprise"], NOON + now)
        for receiver, messages in sent.items():
            while (pending := box.due(receiver, NOON + now + FOLLOW_UP)) is not None:
                messages.append((pending.message.step, names(pending.message)))
                box.accepted(pending, NOON + now + FOLLOW_UP, Receipt())
    for messages in sent.values():
        assert messages == [
            ("first", ["NonFiniteLoss firing"]),
            ("first", ["TrainingCrashed firing"]),
            ("follow-up", ["TrainingCrashed ended"]),
            ("follow-up", ["NonFiniteLoss ended"]),
            ("first", ["CheckpointStale firing"]),
        ]
    box.close()


def an_incident(rank: int | None) -> IncidentView:
    root = RootView(
        tier="named", kind="ddp_param_mismatch", message="other parameters", rank=rank,
        ranks="" if rank is None else str(rank), node=None, host=None, local_rank=None, pid=None,
        at=NOON, position=None, why=(),
    )  # fmt: skip
    return IncidentView(
        id="r1/1", run="r1", state="open", ended_reason="", title="other parameters",
        confidence="probable", opened_at=NOON, updated_at=NOON, ended_at=None, root=root,
        collective=None, symptoms=(), events=1, claims=(), excerpt=(), action="", last_step=None,
        alerts=("TrainingCrashed",),
    )  # fmt: skip


CRASHED = {"incident": "r1/1", "named": True, "rank": "1"}


def test_where_a_message_cannot_be_edited_another_rank_of_the_incident_is_a_follow_up(channel):
    slack = channel()
    slack.outbox.update_incidents([an_incident(1)], slack.now)
    slack.add("TrainingCrashed", **CRASHED)
    (first,) = slack.sent()
    assert news_of(first).title == "r1: other parameters, rank 1"
    slack.now += FOLLOW_UP
    assert slack.sent() == []
    slack.outbox.update_incidents([an_incident(0)], slack.now)
    (correction,) = slack.sent()
    expected = "correction: r1: other parameters, rank 0"
    assert (correction.step, news_of(correction).title) == ("correction", expected)
    slack.now += FOLLOW_UP
    assert slack.sent() == []
    slack.outbox.update_incidents([an_incident(None)], slack.now)
    assert [news_of(each).title for each in slack.sent()] == [expected.removesuffix(", rank 0")]


def test_a_follow_up_after_a_correction_names_the_corrected_rank(channel):
    slack = channel()
    slack.outbox.update_incidents([an_incident(1)], slack.now)
    slack.add("TrainingCrashed", **CRASHED)
    slack.sent()
    slack.now += FOLLOW_UP
    slack.outbox.update_incidents([an_incident(0)], slack.now)
    assert [each.step for each in slack.sent()] == ["correction"]
    slack.now += FOLLOW_UP
    slack.add("NcclTimeout", incident="r1/1", rank="5")
    (follow_up,) = slack.sent()
    assert follow_up.step == "follow-up"
    assert [(each.alert, each.rank) for each in follow_up.alerts] == [
        ("TrainingCrashed", "0"), ("NcclTimeout", "5"),
    ]  # fmt: skip


def test_where_a_message_can_be_edited_its_first_line_has_the_rank_of_the_incident(channel):
    slack = channel()
    slack.outbox.update_incidents([an_incident(1)], slack.now)
    slack.add("TrainingCrashed", **CRASHED)
    slack.sent("C1 1.0")
    slack.outbox.update_incidents([an_incident(0)], slack.now)
    slack.now += FOLLOW_UP
    (edit,) = slack.sent("C1 1.0")
    assert (edit.step, whole_of(edit).title) == (
        "update",
        "r1: other parameters, rank 0",
    )


def test_an_alert_on_a_series_of_another_rank_names_the_rank_of_the_incident(channel):
    slack = channel()
    slack.outbox.update_incidents([an_incident(1)], slack.now)
    slack.add("NonFiniteLoss", incident="r1/1", rank="0")
    (first,) = slack.sent()
    assert news_of(first).title == "r1: other parameters, rank 1"
