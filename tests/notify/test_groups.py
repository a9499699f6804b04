"""Alerts that are told together: the first at once, what follows in company, nothing lost."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ldlm_monitor.config.routing import InhibitRule, Route
from ldlm_monitor.config.time_intervals import TimeInterval
from ldlm_monitor.model.alert import Transition
from ldlm_monitor.model.errors import DeliveryError
from ldlm_monitor.model.view import IncidentView, RootView
from ldlm_monitor.notify.message import Message, Receipt
from ldlm_monitor.notify.notification import Notification
from ldlm_monitor.notify.outbox import Outbox
from ldlm_monitor.notify.routing import Routing

NOON = 1_700_049_600.0
"""2023-11-15 12:00 UTC."""
QUARTER = 30.0
"""The default group_interval."""


class Channel:
    """A receiver of groups over an outbox, at a time that the test sets."""

    def __init__(self, path: Path, make: Callable[..., Notification], routing: Routing) -> None:
        self.path = path
        self.make = make
        self.routing = routing
        self.outbox = Outbox(path, routing, ["slack"])
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
        told = self.make(alert, state=state, **fields)
        self.outbox.add(told, ["slack", "webhook"], self.now)

    def told(self, place: str | None = None, receiver: str = "slack") -> list[Message]:
        """What it is told now, all accepted."""
        messages = []
        while (pending := self.outbox.due(receiver, self.now)) is not None:
            messages.append(pending.message or pending.notification)
            self.outbox.accepted(pending, self.now, Receipt(place))
        return messages

    def restart(self) -> None:
        self.outbox.close()
        self.outbox = Outbox(self.path, self.routing, ["slack"])


@pytest.fixture
def channel(tmp_path, make_notification) -> Iterator[Callable[..., Channel]]:
    made = []

    def make(**settings: object) -> Channel:
        route = Route.model_validate(settings.pop("route", {}))
        routing = Routing(["slack", "webhook"], route, **settings)
        made.append(Channel(tmp_path / "outbox.sqlite", make_notification, routing))
        return made[-1]

    yield make
    for each in made:
        each.outbox.close()


def names(message: Message) -> list[str]:
    return [f"{each.alert} {each.state}" for each in message.news]


def test_the_first_alert_is_told_at_once_and_what_follows_in_company(channel):
    slack = channel()
    slack.add()
    (first,) = slack.told()
    assert (first.step, names(first)) == ("first", ["NonFiniteLoss firing"])
    slack.now += 1
    slack.add("TrainingCrashed")
    slack.add("NcclTimeout")
    slack.add("NonFiniteLoss", "resolved")
    assert slack.told() == []
    assert slack.outbox.next_attempt("slack") == NOON + QUARTER
    slack.now = NOON + QUARTER
    (second,) = slack.told()
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
        messages += slack.told()
    slack.now = NOON + QUARTER + 2
    messages += slack.told()
    assert len(messages) == 2
    assert sum(len(message.news) for message in messages) == 1000
    assert len(messages[-1].standing) == 1000


def test_another_run_is_told_at_once(channel):
    slack = channel()
    slack.add(run="r1")
    slack.add(run="r2")
    assert [message.news[0].run for message in slack.told()] == ["r1", "r2"]


def test_alerts_of_another_incident_of_the_run_are_told_apart_at_once(channel):
    slack = channel()
    slack.add("NonFiniteLoss", incident="r1/1")
    slack.told()
    slack.now += 300
    slack.add("TrainingCrashed", incident="r1/2")
    (other,) = slack.told()
    assert other.step == "first"


def test_an_incident_that_opens_soon_after_the_first_alert_is_told_with_it(channel):
    slack = channel()
    slack.add("ThroughputDrop")
    (first,) = slack.told()
    slack.now += 40
    slack.add("TrainingCrashed", incident="r1/1")
    (second,) = slack.told()
    assert (second.group, second.step) == (first.group, "follow-up")


def test_an_alert_without_incident_belongs_to_what_goes_on_in_its_run(channel):
    slack = channel()
    slack.add("TrainingStalled", incident="r1/1")
    (first,) = slack.told()
    slack.now += 3000
    slack.add("CheckpointStale")
    (second,) = slack.told()
    assert second.group == first.group


def test_the_end_is_told_where_the_beginning_was(channel):
    slack = channel(route={"group_by": ["step"]})
    slack.add("NonFiniteLoss", labels={"run": "r1", "step": "1"})
    (first,) = slack.told()
    slack.now += 60
    slack.add("NonFiniteLoss", "resolved", labels={"run": "r1", "step": "2"})
    (second,) = slack.told()
    assert second.group == first.group
    assert second.firing == ()


def test_what_comes_back_after_its_end_goes_on_in_its_group_for_a_while(channel):
    slack = channel()
    groups = []
    for pause in (60, 60, 3000):
        slack.add()
        slack.now += QUARTER
        slack.told()
        slack.add("NonFiniteLoss", "resolved")
        slack.now += 3600
        slack.now -= 3600 - pause
        groups += [message.group for message in slack.told()]
        slack.now += pause
    slack.now += 3000
    slack.add()
    (late,) = slack.told()
    assert groups[0] == groups[1]
    assert late.group != groups[0]


def test_an_alert_that_flaps_is_told_less_and_less_often(channel):
    slack = channel()
    told = []
    for _ in range(180):
        slack.add()
        slack.now += 10
        told += slack.told()
        slack.add("NonFiniteLoss", "resolved")
        slack.now += 10
        told += slack.told()
    assert len(told) <= 8, "of 360 transitions within an hour"
    assert told[-1].is_flapping
    slack.now += 3600
    told += slack.told()
    assert sum(len(message.news) for message in told) == 360


def test_what_fires_still_is_told_again_after_the_repeat_interval(channel):
    slack = channel(route={"repeat_interval": "1h"})
    slack.add()
    slack.told()
    slack.now += 3599
    assert slack.told() == []
    slack.now += 1
    (again,) = slack.told()
    assert (again.step, again.news) == ("repeat", ())
    assert [each.alert for each in again.firing] == ["NonFiniteLoss"]
    slack.add("NonFiniteLoss", "resolved")
    slack.now += QUARTER
    slack.told()
    slack.now += 7200
    assert slack.told() == []
    assert slack.outbox.next_attempt("slack") is None


def test_a_group_that_is_to_wait_for_more_waits(channel):
    slack = channel(route={"group_wait": "30s"})
    slack.add("NonFiniteLoss")
    assert slack.told() == []
    slack.now += 29
    slack.add("TrainingCrashed")
    slack.now += 1
    (message,) = slack.told()
    assert names(message) == ["NonFiniteLoss firing", "TrainingCrashed firing"]


def test_info_waits_for_the_digest(channel):
    slack = channel()
    for run in ("r1", "r2"):
        slack.add("LossPlateau", run=run, severity="info")
    assert slack.told() == []
    slack.now += 3600
    (digest,) = slack.told()
    assert [each.run for each in digest.news] == ["r1", "r2"]


AFTERNOON = TimeInterval.model_validate(
    {
        "name": "afternoon",
        "time_intervals": [{"times": [{"start_time": "12:00", "end_time": "13:00"}]}],
    }
)
QUIET = {"routes": [{"matchers": ["run=r1"], "mute_time_intervals": ["afternoon"]}]}


@pytest.mark.parametrize("receiver", ["slack", "webhook"])
def test_quiet_hours_keep_all_back_until_they_end(channel, receiver):
    slack = channel(route=QUIET, time_intervals=[AFTERNOON])
    slack.add("NonFiniteLoss")
    slack.add("TrainingCrashed", run="r2")
    assert [
        m.run if receiver == "webhook" else m.news[0].run for m in slack.told(receiver=receiver)
    ] == ["r2"]
    slack.now += 3590
    assert slack.told(receiver=receiver) == []
    slack.now += 10
    assert len(slack.told(receiver=receiver)) == 1


@pytest.mark.parametrize("receiver", ["slack", "webhook"])
def test_what_came_and_went_within_quiet_hours_is_told_to_nobody(channel, receiver):
    slack = channel(route=QUIET, time_intervals=[AFTERNOON])
    slack.add()
    assert slack.told(receiver=receiver) == []
    slack.now += 60
    slack.add("NonFiniteLoss", "resolved")
    slack.told(receiver=receiver)
    slack.now += 3600
    assert slack.told(receiver=receiver) == []
    assert slack.outbox.counts()[receiver, "withheld"] == 2


@pytest.mark.parametrize("receiver", ["slack", "webhook"])
def test_the_end_of_what_was_told_before_quiet_hours_is_told_after_them(channel, receiver):
    slack = channel(route=QUIET, time_intervals=[AFTERNOON])
    slack.now -= 60
    slack.add()
    assert len(slack.told(receiver=receiver)) == 1
    slack.now += 120
    slack.add("NonFiniteLoss", "resolved")
    assert slack.told(receiver=receiver) == []
    slack.now += 3600
    assert len(slack.told(receiver=receiver)) == 1


SLOW_IS_NO_NEWS = InhibitRule.model_validate(
    {
        "source_matchers": ["alertname=TrainingCrashed"],
        "target_matchers": ["severity=warning"],
        "equal": ["run"],
    }
)


def crash(state: str) -> Transition:
    return Transition(
        time=NOON, alert="TrainingCrashed", state=state, previous="inactive", reason="",
        labels={"run": "r1", "severity": "critical"}, value=1.0, active_at=NOON,
    )  # fmt: skip


@pytest.mark.parametrize("receiver", ["slack", "webhook"])
def test_an_inhibited_alert_is_told_once_its_source_ended_if_it_fires_still(channel, receiver):
    slack = channel(inhibit_rules=[SLOW_IS_NO_NEWS])
    slack.outbox.note(crash("firing"))
    slack.add("ThroughputDrop", severity="warning")
    assert slack.told(receiver=receiver) == []
    slack.now += 60
    assert slack.told(receiver=receiver) == []
    slack.outbox.note(crash("ended"))
    slack.now += 60
    assert len(slack.told(receiver=receiver)) == 1


@pytest.mark.parametrize("receiver", ["slack", "webhook"])
def test_an_inhibited_alert_that_is_over_is_told_to_nobody(channel, receiver):
    slack = channel(inhibit_rules=[SLOW_IS_NO_NEWS])
    slack.outbox.note(crash("firing"))
    slack.add("ThroughputDrop", severity="warning")
    assert slack.told(receiver=receiver) == []
    slack.now += 60
    slack.add("ThroughputDrop", "resolved", severity="warning")
    slack.outbox.note(crash("ended"))
    slack.now += 60
    assert slack.told(receiver=receiver) == []


def test_a_receiver_that_is_down_for_an_hour_is_told_all_in_few_messages(channel):
    slack = channel()
    for minute in range(60):
        slack.add("RankStraggling", rank=str(minute))
        while (pending := slack.outbox.due("slack", slack.now)) is not None:
            slack.outbox.failed(pending, DeliveryError("down"), slack.now)
        slack.now += 60
    slack.now += 300
    (message,) = slack.told()
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
    slack.now += QUARTER
    (rest,) = slack.told()
    assert names(rest) == ["TrainingCrashed firing"]
    assert slack.outbox.counts()["slack", "repeated"] == 0


def test_a_restart_between_request_and_answer_repeats_one_message_and_counts_it(channel):
    slack = channel()
    slack.add("NonFiniteLoss")
    slack.add("TrainingCrashed")
    before = slack.outbox.due("slack", slack.now)
    slack.restart()
    (again,) = slack.told()
    assert again.unsure
    assert names(again) == names(before.message)
    assert again.identity == before.message.identity
    assert slack.outbox.counts()["slack", "repeated"] == 2


def test_a_message_that_is_refused_for_good_is_counted_and_the_group_goes_on(channel):
    slack = channel()
    slack.add("NonFiniteLoss")
    pending = slack.outbox.due("slack", slack.now)
    slack.outbox.failed(pending, DeliveryError("invalid", permanent=True), slack.now)
    assert slack.told() == []
    assert slack.outbox.counts()["slack", "failed"] == 1
    slack.now += QUARTER
    slack.add("TrainingCrashed")
    (message,) = slack.told()
    assert names(message) == ["TrainingCrashed firing"]


def test_groups_wait_no_longer_when_the_monitor_ends(channel):
    slack = channel()
    slack.add()
    slack.told()
    slack.add("TrainingCrashed")
    assert slack.outbox.due("slack", slack.now) is None
    assert names(slack.outbox.due("slack", slack.now, last=True).message) == [
        "TrainingCrashed firing"
    ]


def test_the_end_of_the_monitor_does_not_end_quiet_hours(channel):
    slack = channel(route=QUIET, time_intervals=[AFTERNOON])
    slack.add()
    assert slack.outbox.due("slack", slack.now, last=True) is None


def test_where_a_message_stands_is_known_after_a_restart(channel):
    slack = channel()
    slack.add()
    assert [message.step for message in slack.told(place="C1 17.5")] == ["first", "picture"]
    slack.restart()
    slack.now += QUARTER
    slack.add("TrainingCrashed")
    follow_up, *rest = slack.told()
    assert follow_up.place == "C1 17.5"
    assert [message.step for message in rest] == ["update"]


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
    slack.told(place="C1 17.5")
    assert slack.outbox.tell_incidents([incident()], slack.now)
    assert not slack.outbox.tell_incidents([incident()], slack.now), "nothing new"
    (update,) = slack.told()
    assert (update.step, update.story.title) == ("update", "it began")
    slack.outbox.tell_incidents([incident(title="rank 3 ran out of memory")], slack.now)
    assert slack.told() == [], "not at every change"
    slack.now += 5
    (update,) = slack.told()
    assert update.story.title == "rank 3 ran out of memory"
    slack.restart()
    slack.outbox.tell_incidents([incident(title="rank 3 ran out of memory")], slack.now)
    slack.now += 5
    assert slack.told() == [], "it says so already"


def test_a_secret_of_an_incident_is_not_kept(channel):
    slack = channel()
    slack.add(incident="r1/1")
    slack.told(place="C1 17.5")
    key = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
    slack.outbox.tell_incidents([incident(title=f"login with {key} failed")], slack.now)
    (update,) = slack.told()
    assert "hf_AbC" not in update.story.title


def test_a_route_to_nobody_keeps_nothing(channel):
    slack = channel(route={"receiver": "none"})
    slack.add()
    assert slack.told() == []
    assert slack.told(receiver="webhook") == []


def test_what_was_added_before_changes_nothing(channel):
    slack = channel()
    slack.add()
    slack.told()
    slack.add()
    slack.now += 3600
    assert slack.told() == []


def test_no_other_alert_waits_for_one_that_flaps(channel):
    slack = channel()
    for _ in range(40):
        slack.add("LossSpike", severity="warning")
        slack.now += 10
        slack.told()
        slack.add("LossSpike", "resolved", severity="warning")
        slack.now += 10
        slack.told()
    slack.add("TrainingCrashed")
    slack.now += QUARTER
    (message,) = slack.told()
    assert "TrainingCrashed firing" in names(message)


def test_what_is_not_known_to_fire_any_more_is_not_repeated(channel):
    """As after a restart without the run's logs; `note` says what fires."""
    slack = channel(route={"repeat_interval": "1h"})
    slack.outbox.note(crash("firing"))
    slack.add("TrainingCrashed", key=crash("firing").key)
    slack.told()
    slack.restart()
    slack.now += 3600
    assert slack.told() == []
    slack.outbox.note(crash("firing"))
    slack.now += 60
    assert [message.step for message in slack.told()] == ["repeat"]


def test_a_change_that_is_refused_for_good_costs_no_alert(tmp_path, make_notification):
    """The second group is the pager's, and the second alert waits for the end of quiet hours."""
    routing = Routing(["slack", "pager"], Route.model_validate(QUIET), (), [AFTERNOON])
    box = Outbox(tmp_path / "outbox.sqlite", routing, ["slack", "pager"])
    for run in ("r2", "r1"):
        told = make_notification(run=run, labels={"run": run}, incident=f"{run}/1")
        box.add(told, ["slack", "pager"], NOON)
    for step in ("first", "picture"):
        pending = box.due("pager", NOON)
        assert pending.message.step == step
        box.accepted(pending, NOON, Receipt("C1 17.5"))
    box.tell_incidents([incident(run="r2", id="r2/1")], NOON)
    update = box.due("pager", NOON)
    assert update.message.step == "update"
    box.failed(update, DeliveryError("never", permanent=True), NOON)
    assert box.counts()["pager", "failed"] == 0
    assert names(box.due("pager", NOON + 3600).message) == ["NonFiniteLoss firing"]
    box.close()


def test_what_was_queued_before_there_were_groups_is_told_too(channel, make_notification):
    slack = channel()
    slack.outbox.close()
    before = Outbox(slack.path)
    before.add(make_notification(), ["slack"], NOON)
    before.close()
    slack.outbox = Outbox(slack.path, slack.routing, ["slack"])
    slack.add("TrainingCrashed", run="r2")
    alone, group = slack.told()
    assert alone.alert == "NonFiniteLoss"
    assert names(group) == ["TrainingCrashed firing"]
