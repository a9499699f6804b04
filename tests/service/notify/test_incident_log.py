"""What receivers that keep a log of incidents get: each one's opening and its end, once."""

from typing import Any

import pytest

from ldlm_monitor.service.notify.incident_log import NEWS_SECONDS, IncidentLog
from ldlm_monitor.service.notify.message import Notification, Receipt
from ldlm_monitor.service.notify.outbox import Outbox
from tests.base.views import INCIDENT

OPENED, ENDED = 1_700_000_000.0, 1_700_000_600.0
OPEN = INCIDENT.model_copy(update={"opened_at": OPENED, "ended_at": None, "state": "open"})
OVER = OPEN.model_copy(
    update={"ended_at": ENDED, "state": "ended", "ended_reason": "the run has ended"}
)


class Kept:
    """A log of incidents whose daemon may be started again."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.start()

    def start(self, external_url: str | None = None) -> None:
        self.log = IncidentLog(self.outbox, ["otlp logs"], external_url)

    def got(self, *views: Any, at: float) -> list[Notification]:
        """What is new for the receiver once these are the incidents."""
        was_queued = self.log.update(views, at)
        found = []
        while (pending := self.outbox.due("otlp logs", at)) is not None:
            found += pending.message.news
            self.outbox.accepted(pending, at, Receipt())
        assert was_queued is bool(found)
        return found


@pytest.fixture
def kept(outbox: Outbox) -> Kept:
    return Kept(outbox)


def states(found: list[Notification]) -> list[str]:
    return [each.state for each in found]


def test_an_incident_is_told_at_its_opening_and_at_its_end(kept: Kept) -> None:
    (opening,) = kept.got(OPEN, at=OPENED)
    assert kept.got(OPEN, at=OPENED + 60) == []
    (end,) = kept.got(OVER, at=ENDED)
    assert kept.got(OVER, at=ENDED + 60) == []
    assert (opening.state, opening.reason, opening.at) == ("firing", "", OPENED)
    assert (end.state, end.reason, end.at) == ("ended", "the run has ended", ENDED)
    assert end.key == opening.key
    assert end.started_at == opening.started_at == OPENED


def test_a_run_that_went_on_has_recovered(kept: Kept) -> None:
    recovered = OVER.model_copy(update={"state": "recovered"})
    assert states(kept.got(recovered, at=ENDED)) == ["firing", "resolved"]


def test_after_a_restart_nothing_is_told_again(kept: Kept) -> None:
    kept.got(OPEN, at=OPENED)
    kept.start()
    assert kept.got(OPEN, at=OPENED + 60) == []
    assert states(kept.got(OVER, at=ENDED)) == ["ended"]


def test_an_hour_after_its_end_an_incident_of_the_history_is_no_news(kept: Kept) -> None:
    assert kept.got(OVER, at=ENDED + NEWS_SECONDS + 1) == []
    kept.start()
    assert states(kept.got(OVER, at=ENDED + NEWS_SECONDS)) == ["firing", "ended"]


def test_the_end_of_one_that_was_told_is_told_however_late(kept: Kept) -> None:
    kept.got(OPEN, at=OPENED)
    kept.start()
    assert states(kept.got(OVER, at=ENDED + 9 * NEWS_SECONDS)) == ["ended"]


def test_it_is_as_severe_as_its_worst_alert_and_an_error_without_one(kept: Kept) -> None:
    alerts = ("TrainingEnded", "NonFiniteLoss", "MyOwn")
    (found,) = kept.got(OPEN.model_copy(update={"alerts": alerts}), at=OPENED)
    assert found.severity == "critical"
    (other,) = kept.got(OPEN.model_copy(update={"alerts": ("MyOwn",), "id": "2"}), at=OPENED)
    assert other.severity == "error"


def test_it_leads_to_the_page_of_its_run_where_that_is_known(kept: Kept) -> None:
    assert kept.got(OPEN, at=OPENED)[0].link == ""
    kept.start("https://monitor.lan/ldlm")
    (found,) = kept.got(OPEN.model_copy(update={"id": "2"}), at=OPENED)
    assert found.link == f"https://monitor.lan/ldlm/runs/{OPEN.run}"
    assert (found.run, found.step, found.summary) == (OPEN.run, OPEN.last_step, OPEN.title)
