"""The pictures of docs/slack.md: whatever the monitor sends is drawn, and nothing left out."""

import html
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from slack_page import Shown, page

from ldlm_monitor.service.notify.message import Message, Notification
from ldlm_monitor.service.notify.slack_message import Block, mrkdwn
from tests.service.notify.stories import OUT_OF_MEMORY, group_message, news_message, slack_message

STORY = replace(
    OUT_OF_MEMORY,
    excerpt=(("train.log:17", "torch.OutOfMemoryError: <CUDA> out of memory & `more`"),),
)


def sent(alerts: tuple[Notification, ...]) -> list[list[Block]]:
    """Every form in which these alerts may reach Slack."""
    forms = [slack_message(each)[1] for each in alerts]
    for story in (None, STORY):
        for flaps in (0, 9):
            for news in (alerts, alerts[:1], ()):
                message = Message(
                    step="follow-up" if news else "repeat", group=1, identity="1", news=news,
                    alerts=alerts, opened_at=1_700_000_000.0, story=story, flaps=flaps,
                )  # fmt: skip
                forms.append(group_message(message)[1])
                forms += [news_message(message)[1]] if message.firing or news else []
    return forms


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def in_blocks(blocks: list[Block]) -> list[str]:
    """Every text of a message, without Slack's escapes."""
    texts = []
    for block in blocks:
        found = [*block.get("fields", []), *block.get("elements", [])]
        texts += [each["text"] for each in [*([block["text"]] if "text" in block else []), *found]]
    return [html.unescape(text) for text in texts]


@pytest.mark.parametrize("state", ["firing", "pending", "resolved", "ended", "unknown"])
@pytest.mark.parametrize("severity", ["critical", "error", "warning", "info", "none"])
def test_every_message_is_drawn_with_all_its_words(
    make_notification: Callable[..., Notification], state: str, severity: str
) -> None:
    alerts = (
        make_notification(state=state, severity=severity, cause="rank 3", at=1_700_000_100.0),
        make_notification("RankLost", state="firing", line="<b>it's `gone`</b> & *so on*"),
    )
    for blocks in sent(alerts):
        drawn = html.unescape(re.sub(r"<[^>]*>", "\n", page([Shown(blocks)])))
        shown = set(words(drawn))
        for text in in_blocks(blocks):
            assert set(words(text)) <= shown


def test_the_thread_stands_below_its_message_with_its_picture() -> None:
    blocks = [{"type": "section", "text": mrkdwn("*Run*\n`r1`")}]
    drawn = page([Shown(blocks, "(edited)", [Shown(blocks)], picture=b"\x89PNG")])
    assert "<b>Run</b><br><code>r1</code>" in drawn
    assert drawn.index("(edited)") < drawn.index("2 replies") < drawn.index("data:image/png;base64")


@pytest.mark.parametrize(
    "block",
    [
        {"type": "actions", "elements": []},
        {"type": "section", "text": {"type": "mrkdwn", "text": "not verbatim"}},
        {"type": "section", "text": mrkdwn("<https://example.org|a link>")},
        {"type": "context", "elements": [{"type": "image", "image_url": "x"}]},
    ],
)
def test_what_it_does_not_know_is_refused(block: Block) -> None:
    with pytest.raises(ValueError, match="not drawn"):
        page([Shown([block])])
