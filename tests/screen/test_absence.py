"""What somebody who comes back is shown, and what holds an alert's messages back."""

import pytest

from ldlm_monitor.base.snapshot import AlertView, RunView, Snapshot
from ldlm_monitor.screen.dialogs import AWAY_SECONDS, Absence, Digest
from ldlm_monitor.screen.hold_back import muted, suppression
from ldlm_monitor.screen.page_context import PageContext
from tests.screen.screens import NOW, plain_text


def alert(name: str, state: str = "firing", at: float = NOW - 60, **labels: str) -> AlertView:
    return AlertView(
        name=name, state=state, labels={"severity": "critical", "run": "r", **labels},
        annotations={"summary": f"r: {name} holds"}, value=1.0, active_at=at, fired_at=at,
        position=None,
    )  # fmt: skip


class Visit:
    """A person before a screen whose clock a test moves."""

    def __init__(self, read_all: Snapshot, *, attached: bool = False) -> None:
        self.now = NOW
        empty = {"alerts": (), "transitions": (), "incidents": (), "events": ()}
        self.snapshot = read_all.model_copy(update=empty)
        self.context = PageContext(None, lambda: self.now, self.snapshot)  # type: ignore[arg-type]
        self.absence = Absence(self.context, attached=attached)

    def show(self, *alerts: AlertView, runs: tuple[RunView, ...] | None = None) -> None:
        changes = {"alerts": alerts} | ({} if runs is None else {"runs": runs})
        self.context.snapshot = self.snapshot.model_copy(update=changes)

    def returned(self) -> str:
        """The text that is shown when the person presses a key again."""
        self.absence.note_input()
        return text(self.absence.digest())


def text(digest: Digest | None) -> str:
    assert digest is not None
    return plain_text(digest.lines(100))


def test_who_was_away_for_ten_minutes_sees_what_fired_since(read_all: Snapshot) -> None:
    visit = Visit(read_all)
    visit.now += AWAY_SECONDS
    visit.show(alert("Old", at=NOW - 1), alert("New", at=NOW), alert("Soon", "pending", NOW + 9))
    assert visit.absence.digest() is None, "nobody has come back yet"
    shown = visit.returned()
    assert "Since you left, 10m ago" in shown
    assert "1 alert fired" in shown
    assert "r: New holds" in shown
    assert "r: Old holds" not in shown
    assert "Soon" not in shown
    assert "2 alerts to acknowledge" in shown
    assert visit.absence.digest() is None, "it is shown once"


def test_who_pressed_a_key_sooner_sees_none(read_all: Snapshot) -> None:
    visit = Visit(read_all)
    visit.now += AWAY_SECONDS - 1
    visit.show(alert("New", at=NOW))
    visit.absence.note_input()
    visit.now += AWAY_SECONDS - 1
    visit.absence.note_input()
    assert visit.absence.digest() is None


def test_without_news_there_is_no_digest(read_all: Snapshot) -> None:
    visit = Visit(read_all)
    visit.now += 2 * AWAY_SECONDS
    ended = tuple(run.model_copy(update={"ended_at": NOW - 1}) for run in read_all.runs)
    visit.show(alert("Old", at=NOW - 1), runs=ended)
    visit.absence.note_input()
    assert visit.absence.digest() is None


def test_an_attached_screen_begins_with_the_last_ten_minutes(read_all: Snapshot) -> None:
    visit = Visit(read_all, attached=True)
    visit.show(runs=())
    assert visit.absence.digest() is None, "the runs are still read"
    (first, *others) = read_all.runs
    ended = first.model_copy(update={"ended_at": NOW - AWAY_SECONDS, "state": "crashed"})
    running = (each.model_copy(update={"ended_at": None}) for each in others)
    visit.show(runs=(ended, *running))
    shown = text(visit.absence.digest())
    assert "1 run ended" in shown
    assert "crashed" in shown
    assert first.name in shown


def test_of_many_alerts_twelve_are_listed_and_those_held_back_wait_for_nobody(
    read_all: Snapshot,
) -> None:
    visit = Visit(read_all)
    visit.now += AWAY_SECONDS
    visit.show(
        *(alert(f"New{number:02}", at=NOW) for number in range(15)),
        alert("Watchdog", severity="none"),
        alert("RunFinished", severity="info", at=NOW),
    )
    acks = [{"alert": f"New{number:02}", "labels": alert("x").labels} for number in range(14)]
    visit.context.held_back = {"acks": acks}
    shown = visit.returned()
    assert "15 alerts fired" in shown
    assert "and 3 more" in shown
    assert "1 alert to acknowledge" in shown
    assert "Watchdog" not in shown
    assert "RunFinished" not in shown


def test_a_digest_fits_a_narrow_screen(read_all: Snapshot) -> None:
    visit = Visit(read_all)
    visit.show(alert("A" * 80, at=NOW + 1))
    digest = Digest(visit.context, NOW)
    assert digest.has_news
    lines = digest.lines(40)
    assert max(sum(len(span.text) for span in line) for line in lines[1:-1]) <= 40


MATCHES_RUN = {"name": "run", "value": "r", "isRegex": False}


@pytest.mark.parametrize(
    ("matchers", "silenced", "mutes"),
    [
        ([MATCHES_RUN], True, True),
        ([{"name": "run", "value": "r.*", "isRegex": True}], True, True),
        ([MATCHES_RUN, {"name": "alertname", "value": "A", "isRegex": False}], True, False),
        ([MATCHES_RUN, {"name": "alertname", "value": "B", "isRegex": False}], False, False),
        ([{"name": "run", "value": "other", "isRegex": False}], False, False),
    ],
)
def test_a_silence_holds_back_what_all_its_matchers_hold_for(
    matchers: list[dict[str, object]], silenced: bool, mutes: bool
) -> None:
    silence = {"matchers": matchers, "endsAt": "2026-11-20T12:30:45Z", "createdBy": "ada"}
    until = "2026-11-20 12:30 UTC"
    said = f"silenced until {until} by ada" if silenced else ""
    assert suppression(alert("A"), {"silences": [silence]}) == said
    assert muted("r", {"silences": [silence]}) == (until if mutes else "")


def test_an_acknowledgement_is_of_one_alert_with_its_labels() -> None:
    ack = {"alert": "A", "labels": alert("A").labels}
    assert suppression(alert("A"), {"acks": [ack]}) == "acknowledged by ?"
    assert suppression(alert("B"), {"acks": [ack]}) == ""
    assert suppression(alert("A", rank="1"), {"acks": [{**ack, "by": "ada"}]}) == ""
