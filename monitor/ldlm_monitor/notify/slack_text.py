"""Slack's text: escaped, bounded, and the elements of Block Kit that contain it.

Limits of https://docs.slack.dev/reference/block-kit/blocks: header 150 characters,
section 3000, field 2000, 50 blocks. Text is escaped as
https://docs.slack.dev/messaging/formatting-message-text requires, so that nothing in a log
becomes a mention or a link.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from ldlm_monitor.notify.notification import clean

Block: TypeAlias = dict[str, Any]

HEADER_LIMIT: Final = 150
FALLBACK_LIMIT: Final = 1000
"""Characters of the text that notifications and screen readers show instead of the blocks."""
TEXT_LIMIT: Final = 1700
"""Characters of each text, the log line included: all blocks of a message together may have some
13,000, which is not documented (https://github.com/slackapi/bolt-js/issues/2509)."""
ESCAPED: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
IN_CODE: Final = {**ESCAPED, "`": "ˋ"}
"""A backtick would end the code; its look-alike (U+02CB) does not."""
IN_HEADER: Final = {"<": "‹", ">": "›"}
"""Plain text is not escaped; without these two it is a mention nowhere."""
_NO_BACKTICK: Final = str.maketrans("`", IN_CODE["`"])


def one_line(text: str) -> str:
    """Redacted, its line ends made spaces."""
    return " ".join(clean(text).split())


def cut(text: str, limit: int, escapes: dict[str, str] = ESCAPED) -> str:
    """`text` escaped, at most `limit` UTF-16 units long and never cut inside an entity."""
    return "".join(_pieces(text, limit, escapes))


def _pieces(text: str, limit: int, escapes: dict[str, str]) -> Iterator[str]:
    pieces = [escapes.get(char, char) for char in text[: limit + 1]]
    sizes = [len(piece) + (piece > "\uffff") for piece in pieces]
    if sum(sizes) <= limit:
        yield from pieces
        return
    left = limit - 1
    for piece, size in zip(pieces, sizes, strict=True):
        left -= size
        if left < 0:
            break
        yield piece
    yield "…"


def as_code(text: str) -> str:
    """An escaped line in which Slack makes no links where no block contains it."""
    return f"`{text.translate(_NO_BACKTICK)}`"


def mrkdwn(text: str) -> Block:
    """`verbatim`: Slack adds no links or mentions of its own."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def section(text: str) -> Block:
    """A section of that text, which is escaped already."""
    return {"type": "section", "text": mrkdwn(text)}


def context(text: str) -> Block:
    """Small print of that text, which is escaped already."""
    return {"type": "context", "elements": [mrkdwn(text)]}


def header(title: str) -> Block:
    """The heading of a message."""
    text = {"type": "plain_text", "text": cut(title, HEADER_LIMIT, IN_HEADER)}
    return {"type": "header", "text": text}


def code(text: str) -> list[Block]:
    """A section of monospaced text; none for no text."""
    return [section(f"```\n{cut(text, TEXT_LIMIT, IN_CODE)}\n```")] if text else []
