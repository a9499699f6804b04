"""A bot's message is kept up to date where it stands, and its thread has the rest."""

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.errors import ConfigError, DeliveryError
from ldlm_monitor.service.notify.message import Message, Notification, Receipt, Story
from ldlm_monitor.service.notify.slack_bot import SlackBot
from tests.service.notify import slack_api as local
from tests.service.notify.stories import OUT_OF_MEMORY, group_message, news_message

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def api() -> Iterator[local.SlackApi]:
    with local.slack_api() as state:
        yield state


@pytest.fixture
def bot(api: local.SlackApi) -> SlackBot:
    return SlackBot(local.TOKEN, local.CHANNEL, api_url=api.url)


@pytest.fixture
def make_message(make_notification) -> Callable[..., Message]:
    def make(*news: Notification, **changes: object) -> Message:
        shown = news or (make_notification(),)
        fields = {
            "step": "first",
            "group": 1,
            "identity": "1/1/1",
            "news": shown,
            "alerts": shown,
            "opened_at": 1_700_000_000.0,
        }
        return Message(**{**fields, **changes})

    return make


def shown(message: dict) -> str:
    """All that a message shows."""
    return "\n".join(texts(message["blocks"]))


def texts(blocks: list[dict]) -> list[str]:
    found = []
    for block in blocks:
        found += [block["text"]] if "text" in block else []
        found += block.get("fields", []) + block.get("elements", [])
    return [text["text"] for text in found]


def test_the_first_message_is_posted_and_its_place_is_returned(api, bot, make_message):
    receipt = bot.send(make_message())
    (posted,) = api.posted
    assert receipt.place == f"{local.CHANNEL} {posted['ts']}"
    assert posted["text"].startswith("🔴 r1: NonFiniteLoss firing")
    assert posted["unfurl_links"] is False


def test_what_follows_goes_to_the_thread_and_the_message_is_brought_up_to_date(
    api, bot, make_message, make_notification
):
    place = bot.send(make_message()).place
    crash = make_notification("TrainingCrashed")
    both = (make_notification(), crash)
    bot.send(make_message(crash, step="follow-up", place=place, alerts=both))
    bot.send(make_message(step="update", news=(), place=place, alerts=both, story=OUT_OF_MEMORY))
    (posted,), (reply,) = api.posted, api.replies
    assert reply["thread_ts"] == posted["ts"]
    assert "TrainingCrashed firing" in shown(reply)
    assert posted["edits"] == 1
    assert "r1: NonFiniteLoss firing +1: TrainingCrashed" in shown(posted)


def test_the_message_of_an_incident_has_cause_excerpt_action_and_alerts(
    make_message, make_notification
):
    standing = tuple(make_notification("NcclTimeout", rank=str(rank)) for rank in range(8))
    text, blocks = group_message(
        make_message(alerts=(make_notification(), *standing), story=OUT_OF_MEMORY)
    )
    given = "\n".join(texts(blocks))
    assert text == "🔴 r1: NonFiniteLoss firing +1: NcclTimeout"
    assert "CUDA out of memory on rank 3 (gpu04) -&gt; timeout on 7 ranks at step 120" in given
    assert "*First cause*\nCUDA out of memory on rank 3 (confirmed)\n• its traceback" in given
    assert "```\ntrain.log:17\n  torch.OutOfMemoryError: CUDA out of memory\n```" in given
    assert "*What to do*\nLower BATCH_SIZE." in given
    assert "NcclTimeout firing ×8: r1 ranks 0-7" in given


def test_alerts_that_differ_in_their_kind_are_listed_each_with_its_summary(
    make_message, make_notification
):
    said = {"run_action": "r1: acts on a failure", "run_restart": "r1: starts it again"}
    done = [
        make_notification("RunActed", rank=None, key=kind, labels={"kind": kind}, summary=summary)
        for kind, summary in said.items()
    ]
    _, blocks = group_message(make_message(alerts=tuple(done)))
    given = "\n".join(texts(blocks))
    assert "RunActed firing: r1: acts on a failure" in given
    assert "RunActed firing: r1: starts it again" in given


def test_a_group_that_is_over_says_from_when_to_when_it_was(make_message, make_notification):
    over = [
        make_notification(alert, state=state, at=1_700_000_000.0 + 3725)
        for alert, state in (("NonFiniteLoss", "resolved"), ("TrainingCrashed", "ended"))
    ]
    text, blocks = group_message(make_message(alerts=tuple(over), story=OUT_OF_MEMORY))
    assert text == "✅ r1: NonFiniteLoss resolved"
    assert "resolved 2023-11-14 23:15:25 UTC (" in texts(blocks)[-1]
    assert not any("What to do" in each for each in texts(blocks))


def test_news_worse_than_all_before_are_shown_in_the_channel_too(
    api, bot, make_message, make_notification
):
    place = bot.send(make_message()).place
    for severity, worst in (("critical", "warning"), ("critical", "critical"), ("info", "error")):
        news = make_notification(severity=severity)
        bot.send(make_message(news, step="follow-up", place=place, worst_sent=worst))
    bot.send(make_message(step="repeat", news=(), place=place, alerts=(make_notification(),)))
    assert [each["reply_broadcast"] for each in api.replies] == [True, False, False, True]
    assert "🔴 still: r1: NonFiniteLoss firing" in api.replies[-1]["text"]


def test_a_thousand_alerts_are_counted_in_one_message(make_message, make_notification):
    many = tuple(make_notification("NcclTimeout", rank=str(rank)) for rank in range(999))
    text, blocks = news_message(make_message(*many, step="follow-up"))
    assert text == "🔴 r1: NcclTimeout firing"
    assert "NcclTimeout firing ×999: r1 ranks 0-998" in "\n".join(texts(blocks))


def test_the_lines_behind_several_alerts_are_shown(make_message, make_notification):
    stall = make_notification("TrainingStalled", line="step 40 loss 2.5", line_number=12)
    _, blocks = news_message(make_message(stall, make_notification(), step="follow-up"))
    assert (
        "```\ntrain_logs/a.log:12\n  step 40 loss 2.5\n"
        "train_logs/a.log:17\n  WARNING: Invalid text_loss detected: nan\n```"
    ) in texts(blocks)


def test_what_has_no_room_is_counted(make_message, make_notification):
    many = tuple(make_notification(f"Alert{number}", run="r" * 200) for number in range(100))
    _, blocks = news_message(make_message(*many, step="follow-up"))
    listed = texts(blocks)[1]
    (rest,) = re.findall(r"… and (\d+) more", listed)
    assert listed.count("🔴") + int(rest) == 100


def test_a_message_that_somebody_deleted_is_begun_anew(api, bot, make_message):
    place = bot.send(make_message()).place
    api.messages.clear()
    bot.send(make_message(step="update", place=place))
    assert api.posted == []
    receipt = bot.send(make_message(step="follow-up", place=place))
    (posted,) = api.posted
    assert receipt.place == f"{local.CHANNEL} {posted['ts']}"


def test_a_message_that_is_too_old_to_be_edited_holds_up_no_other(api, bot, make_message):
    place = bot.send(make_message()).place
    api.answers.append("edit_window_closed")
    assert bot.send(make_message(step="update", place=place)) == Receipt()


def test_an_answer_that_was_lost_makes_no_second_message(api, bot, make_message):
    api.answers.append(local.LOST)
    with pytest.raises(DeliveryError) as lost:
        bot.send(make_message())
    assert lost.value.unsure
    receipt = bot.send(make_message(unsure=True))
    (posted,) = api.posted
    assert receipt == Receipt(f"{local.CHANNEL} {posted['ts']}", found=True)


def test_an_answer_that_was_lost_makes_no_second_reply(api, bot, make_message):
    place = bot.send(make_message()).place
    follow_up = make_message(step="follow-up", place=place, identity="1/1/2")
    api.answers.append(local.LOST)
    with pytest.raises(DeliveryError):
        bot.send(follow_up)
    again = make_message(step="follow-up", place=place, identity="1/1/2", unsure=True)
    assert bot.send(again) == Receipt(place, found=True)
    assert len(api.replies) == 1


def test_where_the_bot_may_not_look_it_posts_again(api, bot, make_message):
    api.can_search = False
    receipt = bot.send(make_message(unsure=True))
    assert not receipt.found
    assert len(api.posted) == 1


def test_blocks_that_slack_refuses_are_left_out_rather_than_the_message(api, bot, make_message):
    api.answers.append("invalid_blocks")
    bot.send(make_message())
    (posted,) = api.posted
    assert "blocks" not in posted
    assert posted["text"].startswith("`🔴 r1: NonFiniteLoss firing")


def test_what_slack_refuses_as_a_plain_line_too_is_given_up(api, bot, make_message):
    place = bot.send(make_message()).place
    for message in (make_message(), make_message(step="update", place=place)):
        api.answers += ["msg_blocks_too_long", "msg_too_long"]
        assert refused(bot, message).permanent


def test_the_plain_line_makes_no_link(api, bot, make_message, make_notification):
    api.answers.append("invalid_blocks")
    bot.send(make_message(make_notification(run="https://evil.example/`<!channel>")))
    (posted,) = api.posted
    assert posted["text"].startswith("`")
    assert posted["text"].count("`") == 2
    assert "<" not in posted["text"]


def refused(bot: SlackBot, message: Message) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        bot.send(message)
    return caught.value


@pytest.mark.parametrize(
    ("answer", "unsure", "wish"),
    [
        ((429, {"Retry-After": "30"}, b'{"ok": false, "error": "ratelimited"}'), False, 30.0),
        ("ratelimited", False, None),
        ((500, {}, b""), True, None),
        ((503, {"Retry-After": "7"}, b"busy"), True, 7.0),
        ("internal_error", True, None),
        (local.GARBAGE, True, None),
        (local.DROP, True, None),
        (local.HANG, True, None),
        ((302, {"Location": "https://evil.example/"}, b""), True, None),
        ("invalid_auth", False, None),
        ("channel_not_found", False, None),
    ],
)
def test_whatever_it_answers_nothing_is_given_up(api, make_message, answer, unsure, wish):
    bot = SlackBot(local.TOKEN, local.CHANNEL, api_url=api.url)
    api.answers.append(answer)
    error = refused(bot, make_message())
    assert (error.permanent, error.unsure, error.retry_after) == (False, unsure, wish)
    assert len(api.calls) == 1


def test_the_token_is_never_logged_or_shown(api, bot, make_message, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    api.answers += ["invalid_auth", local.GARBAGE, local.DROP, (500, {}, local.TOKEN.encode())]
    errors = [refused(bot, make_message()) for _ in range(4)]
    bot.send(make_message())
    given = [
        *map(repr, errors),
        *map(str, errors),
        repr(bot),
        repr(vars(bot)["_api"]),
        caplog.text,
    ]
    assert not any("s3cr3t" in text for text in given)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("token", "url"),
    [
        ("", "https://slack.com/api/"),
        ("xoxb-a\nb", "https://slack.com/api/"),
        ("xoxb-12345678", "http://slack.example/api/"),
        ("xoxb-12345678", "ftp://127.0.0.1/"),
    ],
)
def test_what_cannot_be_a_token_or_an_api_is_refused(token, url):
    with pytest.raises(ConfigError) as wrong:
        SlackBot(token, local.CHANNEL, api_url=url)
    assert "12345678" not in str(wrong.value)


def test_a_picture_is_added_to_the_thread(api, bot, make_message):
    bot.draw = lambda message: b"\x89PNG of " + message.lead.run.encode()
    receipt = bot.send(make_message())
    assert api.shared == [], "not before its arrival is committed"
    receipt.then()
    ((number, channel, thread),) = api.shared
    assert api.files[number] == b"\x89PNG of r1"
    assert f"{channel} {thread}" == receipt.place


def test_info_has_no_picture(bot, make_message, make_notification):
    assert bot.send(make_message(make_notification(severity="info"))).then is None


def test_a_picture_goes_to_slack_alone(api, bot, make_message):
    bot.draw = lambda _: b"\x89PNG"
    add = bot.send(make_message()).then
    answer = b'{"ok": true, "upload_url": "http://127.0.0.1:1/x", "file_id": "F1"}'
    api.answers.append((200, {}, answer))
    with pytest.raises(DeliveryError, match="not its own"):
        add()


NASTY = st.one_of(
    st.text(alphabet=st.characters(categories=["L", "N", "P", "S", "Z", "C"])),
    st.text(alphabet="<>&`!@#*_~|\n\r\t\x1b[ ;m😀\ud800\u202e\u200b", max_size=60),
    st.sampled_from(["<!channel>", "```", "&", "😀", "<@U1>", "\n", "]", "\x1b]8;;x\x07"]).map(
        lambda piece: piece * 1500
    ),
)


def nasty_notification(said: list[str], state: str, at: float) -> Notification:
    alert, run, rank, line, path, summary, description, action, cause = said
    return Notification(
        key=f"k{alert}", alert=alert, state=state, severity=rank, reason=run, run=run, rank=rank,
        step=1, line=line, path=path, line_number=1, summary=summary, description=description,
        action=action, labels={}, value=0.0, started_at=1.0, at=at, cause=cause,
    )  # fmt: skip


@given(
    said=st.lists(st.lists(NASTY, min_size=9, max_size=9), min_size=1, max_size=4),
    states=st.lists(st.sampled_from(["firing", "resolved", "ended"]), min_size=4, max_size=4),
    story=st.one_of(st.none(), st.lists(NASTY, min_size=6, max_size=6)),
    at=st.floats(),
)
def test_any_text_gives_messages_within_limits_and_without_a_mention(said, states, story, at):
    given = tuple(nasty_notification(*each, at) for each in zip(said, states, strict=False))
    known = story and Story(
        id="r/1", title=story[0], cause=story[1], confidence=story[2], why=(story[3],) * 4,
        excerpt=((story[4], story[5]),) * 6, action=story[0],    )  # fmt: skip
    message = Message(
        step="first", group=1, identity="1", news=given, alerts=given, opened_at=1.0, story=known,
        flaps=9,
    )  # fmt: skip
    for text, blocks in (group_message(message), news_message(message)):
        assert 0 < local.utf16(text) <= 1000
        assert local.faults(blocks) == []
        for each in [text, *texts(blocks)]:
            each.encode()
            assert not set("<>") & set(each)
            assert each == texts(blocks)[0] or "&" not in re.sub("&(?:amp|lt|gt);", "", each)
            assert not any(char < " " and char not in "\n\t" for char in each)


def test_secrets_do_not_reach_slack_by_a_story(make_message, make_notification, tmp_path: Path):
    key = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
    given = make_notification(line=key, summary=key, cause=key, run=key)
    story = Story(
        id=key, title=key, cause=key, confidence=key, why=(key,), excerpt=((key, key),),
        action=key,
    )  # fmt: skip
    message = make_message(given, given, story=story)
    for text, blocks in (group_message(message), news_message(message)):
        assert not any("hf_AbC" in each for each in [text, *texts(blocks)])


def test_the_longest_texts_make_no_message_that_is_too_long(make_message, make_notification):
    long = "x" * 5000
    given = make_notification(
        alert=long, run=long, rank=long, path=long, line=long, summary=long, description=long,
        action=long, cause=long, reason=long,
    )  # fmt: skip
    story = Story(
        id="r/1", title=long, cause=long, confidence=long, why=(long,) * 4,
        excerpt=((long, long),) * 6, action=long,
    )  # fmt: skip
    message = make_message(*[given] * 30, story=story, flaps=9)
    single = make_message(given)
    for make in (group_message, news_message):
        assert local.faults(make(message)[1]) == []
        assert local.faults(make(single)[1]) == []
