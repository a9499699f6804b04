"""What Slack shows: everything one needs, within its limits, and nothing that acts."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.service.notify.content import news_of, plain_text
from ldlm_monitor.service.notify.message import Notification, message_of
from tests.service.notify.stories import OUT_OF_MEMORY, news_message, slack_message


def texts(blocks: list[dict]) -> list[str]:
    """Every text object of a message, in order."""
    found = []
    for block in blocks:
        found += [block["text"]] if "text" in block else []
        found += block.get("fields", []) + block.get("elements", [])
    return [text["text"] for text in found]


def test_a_firing_alert_says_all_one_needs(make_notification):
    fallback, blocks = slack_message(make_notification())
    assert fallback == "🔴 r1: NonFiniteLoss firing"
    assert texts(blocks) == [
        "🔴 r1: NonFiniteLoss firing",
        "The loss of r1 is not finite.",
        "text_loss was nan at step 120.",
        "*Alert*\n`NonFiniteLoss firing (critical)`",
        "*Run*\n`r1`",
        "*Rank*\n`3`",
        "*Step*\n`120`",
        "*Log*\n`train_logs/a.log:17`",
        "```\nWARNING: Invalid text_loss detected: nan\n```",
        "*What to do*\nLower LEARNING_RATE, then resume from the last checkpoint.",
        "since 2023-11-14 22:13:20 UTC",
    ]


def test_a_phone_shows_the_line_of_the_alert_alone(make_notification):
    """A notification is one line, which has what happened, where, and what to do."""
    line = "🔴 r1: process killed by SIGKILL at step 9, rank 1 → restart"
    fallback, blocks = slack_message(make_notification(headline=line))
    assert fallback == texts(blocks)[0] == line
    title, _ = plain_text(news_of(message_of(make_notification(headline=line))))
    assert title == line


def test_a_message_takes_line_cause_and_decision_from_one_state_of_its_incident(make_notification):
    """What was known when the alert fired is not mixed with what is known now."""
    fired = make_notification(
        incident="r1/1",
        headline="🔴 r1: ended with exit code 1 → read its log",
        cause="failed (exitcode: 1) [weak]",
        action="Read its log.",
    )
    now = replace(OUT_OF_MEMORY, headline="🔴 r1: out of GPU memory, rank 3 → lower the batch size")
    text, blocks = news_message(replace(message_of(fired), story=now))
    assert text == now.headline
    shown = "\n".join(texts(blocks))
    assert "CUDA out of memory on rank 3 (confirmed)" in shown
    assert "Lower BATCH_SIZE." in shown
    assert "exit" not in shown


def test_a_link_leads_to_the_page_of_the_run(make_notification):
    link = "https://monitor.lan/ldlm/runs/gpt%3C2%3E"
    _, blocks = slack_message(make_notification(link=link))
    assert texts(blocks)[-2] == f"<{link}|Open the page of this run>"
    _title, text = plain_text(news_of(message_of(make_notification(link=link))))
    assert f"Page of the run: {link}" in text.splitlines()


def test_a_resolved_alert_says_from_when_to_when_it_was_and_asks_for_nothing(make_notification):
    fallback, blocks = slack_message(
        make_notification(
            state="resolved", reason="condition no longer holds", at=1_700_000_000.0 + 3725
        )
    )
    assert fallback.startswith("✅ r1: NonFiniteLoss resolved")
    shown = texts(blocks)
    assert not any("What to do" in text for text in shown)
    assert shown[-1] == (
        "since 2023-11-14 22:13:20 UTC, resolved 2023-11-14 23:15:25 UTC"
        " (condition no longer holds)"
    )


@pytest.mark.parametrize(
    ("state", "severity", "mark"),
    [
        ("firing", "warning", "🟡"),
        ("firing", "none", "⚪"),
        ("ended", "critical", "⏹️"),
        ("unknown", "error", "❔"),
    ],
)
def test_a_mark_shows_state_and_severity_at_a_glance(make_notification, state, severity, mark):
    assert slack_message(make_notification(state=state, severity=severity))[0].startswith(mark)


def test_what_is_not_known_is_not_shown(make_notification):
    _, blocks = slack_message(
        make_notification(
            run="",
            rank=None,
            step=None,
            line=None,
            path=None,
            line_number=None,
            summary="",
            description="",
            action="",
            at=None,
        )
    )
    assert [block["type"] for block in blocks] == ["header", "section", "context"]
    assert texts(blocks)[1] == "*Alert*\n`NonFiniteLoss firing (critical)`"


@pytest.mark.parametrize(
    "attack",
    [
        "<!channel>",
        "<!here|x>",
        "<!subteam^S1>",
        "<@U012AB3CD>",
        "<#C012|general>",
        "<https://evil.example|click>",
        "&lt;!channel&gt;",
        "<\u200b!channel>",
        "\x1b[0m<\x00!channel>",
    ],
)
def test_log_text_cannot_mention_or_link(make_notification, attack):
    everywhere = dict.fromkeys(
        ("alert", "run", "rank", "line", "path", "summary", "description", "action", "severity"),
        attack,
    )
    fallback, blocks = slack_message(make_notification(**everywhere))
    assert not any(set("<>") & set(text) for text in [fallback, *texts(blocks)])


@pytest.mark.parametrize("line", ["a ``` b", "```", "`", "x`y`z", "``` <!channel> ```"])
def test_backticks_of_the_line_cannot_end_the_code(make_notification, line):
    _, blocks = slack_message(make_notification(line=line, run=line))
    (code,) = (text for text in texts(blocks) if text.startswith("```"))
    assert code.count("`") == 6
    assert "*Run*\n`" + line.replace("`", "ˋ").replace("<", "&lt;").replace(">", "&gt;") + "`" in (
        texts(blocks)
    )


def test_the_line_itself_is_shown_whole_and_escaped_once(make_notification):
    _, blocks = slack_message(make_notification(line="if a < b && c > d: &amp;\n\tdone"))
    assert "```\nif a &lt; b &amp;&amp; c &gt; d: &amp;amp;\n\tdone\n```" in texts(blocks)


def test_secrets_do_not_reach_slack_even_at_the_edge_of_a_cut(make_notification):
    key = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
    for padding in range(1650, 1710):
        _, blocks = slack_message(make_notification(line="y" * padding + " " + key))
        assert not any("hf_AbC" in text for text in texts(blocks))


def utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


NASTY = st.one_of(
    st.text(alphabet=st.characters(categories=["L", "N", "P", "S", "Z", "C"])),
    st.text(alphabet="<>&`!@#*_~|\n\r\t\x1b[ ;m😀\ud800\u202e\u200b", max_size=60),
    st.sampled_from(["<!channel>", "```", "&", "😀", "<@U1>", "\n", "]", "\x1b]8;;x\x07"]).map(
        lambda piece: piece * 4000
    ),
)


@given(texts_=st.lists(NASTY, min_size=9, max_size=9), moments=st.tuples(st.floats(), st.floats()))
def test_any_text_gives_a_message_within_limits_and_without_a_mention(texts_, moments):
    alert, severity, run, rank, line, path, summary, description, action = texts_
    notification = Notification(
        key="k", alert=alert, state="firing", severity=severity, reason=run, run=run, rank=rank,
        step=1, line=line, path=path, line_number=1, summary=summary, description=description,
        action=action, labels={}, value=0.0, started_at=moments[0], at=moments[1],
    )  # fmt: skip
    fallback, blocks = slack_message(notification)
    assert 0 < utf16_length(fallback) <= 1000
    assert len(blocks) <= 50
    for block in blocks:
        kind = block["type"]
        limit = {"header": 150, "section": 3000}.get(kind, 3000)
        assert "text" not in block or 0 < utf16_length(block["text"]["text"]) <= limit
        assert all(0 < utf16_length(f["text"]) <= 2000 for f in block.get("fields", []))
        assert len(block.get("fields", [])) <= 10
    for text in [fallback, *texts(blocks)]:
        text.encode()
        assert not set("<>") & set(text)
        entities = re.sub("&(?:amp|lt|gt);", "", text)
        assert "&" not in entities or text == texts(blocks)[0]
        assert not any(char < " " and char not in "\n\t" for char in text)
