"""An incident stands in the timeline with its cause, before the event that caused it."""

from ldlm_monitor.base.incident_view import ClaimView, CollectiveView
from ldlm_monitor.base.records import Position
from ldlm_monitor.screen import timeline
from ldlm_monitor.screen.draw import UNICODE
from tests.screen.screens import Screen, Shown, on_screen, plain_text

RUN = "train_20261121_083515"


def test_an_incident_stands_before_its_cause_with_what_followed(shown: Shown) -> None:
    found = timeline.entries(shown.snapshot, RUN, worst_only=True)
    (index,) = (i for i, entry in enumerate(found) if entry.kind.startswith("INCIDENT"))
    (incident,) = (each for each in shown.snapshot.incidents if each.run == RUN)
    assert found[index + 1].position == incident.root.position
    text = plain_text(timeline.detail(found[index], 100, UNICODE))
    assert "IndexError: Target 30521 is out of bounds" in text
    for symptom in incident.symptoms:
        assert f"{symptom.kind} x {symptom.count}" in text
    assert incident.action.split()[0] in text


def test_an_incident_leads_to_the_line_of_its_cause(shown: Shown) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("5", "v", "home")
        for _ in range(20):
            (row,) = [line for line in screen.lines if line.startswith("▶")]
            if "INCIDENT" in row:
                break
            await screen.press("down")
        await screen.until("cause", "to do")
        await screen.press("enter")
        await screen.until("▶      20 ▲ ERROR: Invalid loss detected at step 35")

    on_screen(shown.source, steps, size=(120, 40))


def test_an_incident_shows_its_collective_and_a_blame_that_is_not_confirmed(shown: Shown) -> None:
    (incident,) = (each for each in shown.snapshot.incidents if each.run == RUN)
    group = CollectiveView(
        op="ALLREDUCE", seq=7, group="0", timeout_seconds=600.0, began_at=0.0, waiting="0-2",
        missing="",
    )  # fmt: skip
    claims = tuple(
        ClaimView(
            rank=rank, exitcode=1, host=None, agrees=agrees, reason=f"reason {rank}",
            position=Position("a.log", 1, 0),
        )
        for rank, agrees in ((4, True), (5, False), (6, None))
    )  # fmt: skip

    def text(**changes: object) -> str:
        changed = incident.model_copy(update=changes)
        snapshot = shown.snapshot.model_copy(update={"incidents": (changed,)})
        found = timeline.entries(snapshot, RUN, worst_only=True)
        (entry,) = (each for each in found if each.kind.startswith("INCIDENT"))
        return plain_text(timeline.detail(entry, 100, UNICODE))

    seen = text(collective=group, claims=claims)
    assert "ALLREDUCE #7: 0-2" in seen
    assert "not known" in seen
    assert "rank 5 by torchelastic: reason 5" in seen
    assert "reason 6" in seen
    assert "reason 4" not in seen
    assert "missing" in text(collective=group.model_copy(update={"missing": "3"}))


def test_an_incident_whose_first_event_was_dropped_comes_last(shown: Shown) -> None:
    snapshot = shown.snapshot.model_copy(update={"events": ()})
    (entry,) = timeline.entries(snapshot, RUN, worst_only=False)
    assert entry.kind.startswith("INCIDENT")
    assert {entry.run for entry in timeline.entries(shown.snapshot, None, worst_only=False)} > {RUN}
