"""An incident stands in the timeline with its cause, before the event that caused it."""

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
