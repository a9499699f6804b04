"""The bell: once for each critical alert that begins to fire, unless somebody silenced it."""

from ldlm_monitor.base.snapshot import AlertView, Snapshot
from ldlm_monitor.screen.alert_page import Bell
from tests.screen.screens import Shown


def firing(snapshot: Snapshot, *names: str, severity: str = "critical") -> Snapshot:
    alerts = tuple(
        AlertView(
            name=name, state="firing", labels={"severity": severity, "run": "r"}, annotations={},
            value=1.0, active_at=0.0, fired_at=0.0, position=None,
        )
        for name in names
    )  # fmt: skip
    return snapshot.model_copy(update={"alerts": alerts})


def rung(shown: Shown, *pictures: Snapshot, held_back: dict | None = None) -> list[bool]:
    bell = Bell()
    return [bell.rings(picture, held_back or {}) for picture in pictures]


def test_it_rings_once_for_each_new_critical_alert(shown: Shown) -> None:
    calm = firing(shown.snapshot)
    one, two = firing(calm, "A"), firing(calm, "A", "B")
    assert rung(shown, calm, one, one, two, calm, one) == [False, True, False, True, False, True]


def test_what_fires_when_the_screen_opens_is_no_news(shown: Shown) -> None:
    assert rung(shown, firing(shown.snapshot, "A")) == [False]


def test_it_is_silent_for_what_is_not_critical(shown: Shown) -> None:
    calm = firing(shown.snapshot)
    assert rung(shown, calm, firing(calm, "A", severity="error")) == [False, False]


def test_it_is_silent_for_what_somebody_acknowledged(shown: Shown) -> None:
    calm = firing(shown.snapshot)
    ack = {"alert": "A", "labels": {"severity": "critical", "run": "r"}, "by": "me"}
    assert rung(shown, calm, firing(calm, "A"), held_back={"acks": [ack]}) == [False, False]


def test_it_can_be_turned_off(shown: Shown) -> None:
    bell = Bell(enabled=False)
    calm = firing(shown.snapshot)
    assert not any(bell.rings(picture, {}) for picture in (calm, firing(calm, "A")))
