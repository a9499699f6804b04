"""One decision for one failure: what the screen, the report and messages say."""

import pytest

from ldlm_monitor.finished.report.contents import (
    Item,
    alerts_title,
    brief_sections,
    sections,
    what_to_do,
)
from ldlm_monitor.finished.report.document import report
from ldlm_monitor.screen.triage import why
from ldlm_monitor.service.notify.content import news_of
from ldlm_monitor.service.notify.message import (
    Message,
    Notification,
    Story,
    from_transition,
    story_of,
)
from tests.screen.screens import NOW, Screen, Shown, on_screen

CRASHED, NAN = "train_20261121_083515", "train_20261121_083451"


@pytest.mark.parametrize(("name", "keys"), [(CRASHED, ()), (NAN, ("down",))])
def test_list_card_page_report_and_messages_have_the_same_decision(
    shown: Shown, name: str, keys: tuple[str, ...]
) -> None:
    """One decision: screen, report and Slack advise the same."""
    run = next(run for run in shown.snapshot.runs if run.name == name)
    assert run.decision is not None
    decided = run.decision.phrase
    row = why(run, shown.snapshot)
    assert (row.todo, f"{run.decision.order} {row.sure}") == (run.decision.todo, decided)
    (found,) = (each for each in report(shown.snapshot).runs if each.name == name)
    assert what_to_do(found)[0] == decided
    (incident,) = (each for each in shown.snapshot.incidents if each.run == name)
    story = story_of(incident)
    assert story.action.startswith(f"Decision: {decided}.")
    fired = next(each for each in shown.snapshot.transitions if each.incident == incident.id)
    news = from_transition(fired)
    for message in (group_of(story, news), group_of(story, news, news)):
        assert news_of(message).action == story.action
    (brief, whole) = (brief_sections(found), sections(found))
    title = alerts_title(found)
    alerts = [item for item in (*brief[title], *whole[title]) if isinstance(item, Item)]
    assert [item.action for item in alerts] == [""] * len(alerts)

    async def steps(screen: Screen) -> None:
        await screen.press(*keys)
        await screen.until(f"to do   {decided[:30]}")
        await screen.press("2")
        await screen.until(f"to do {decided}")
        await screen.press("3")
        await screen.until(f"to do   {decided}", f"try     {fired.annotations['action'][:30]}")

    on_screen(shown.source, steps, size=(200, 50))


def group_of(story: Story, *news: Notification) -> Message:
    """A later message of the incident's alerts."""
    shared = {"step": "follow-up", "group": 1, "identity": "1", "opened_at": NOW}
    return Message(news=news, alerts=news, story=story, **shared)  # type: ignore[arg-type]
