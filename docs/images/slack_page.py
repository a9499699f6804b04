"""Draws messages in Slack's layout: the part of Block Kit that the monitor sends, as HTML.

https://docs.slack.dev/reference/block-kit/blocks and
https://docs.slack.dev/messaging/formatting-message-text. What is not known here raises ValueError:
a picture leaves nothing out.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

STYLE = """
body{margin:0;padding:16px 20px;background:#fff;color:#1d1c1d;width:720px;
 font:15px/22px Lato,'Noto Sans',Helvetica,Arial,sans-serif}
.message{display:grid;grid-template-columns:36px 1fr;gap:0 10px;margin-bottom:18px}
.icon{width:36px;height:36px;border-radius:8px;background:#3f46ad;color:#fff;text-align:center;
 font:bold 17px/36px Lato,sans-serif}
.name{font-weight:900}.badge{background:#ddd;border-radius:2px;font-size:10px;font-weight:700;
 line-height:14px;padding:1px 3px;margin:0 6px;vertical-align:2px;color:#454245}
.note{color:#616061;font-size:12px}.header{font-size:18px;font-weight:900;line-height:24px;
 margin:4px 0 8px}
.section{margin:0 0 8px}.fields{display:grid;grid-template-columns:1fr 1fr;gap:8px 16px}
.context{color:#616061;font-size:13px;line-height:18px}
code{font:12px/18px Menlo,'DejaVu Sans Mono',monospace;color:#c01343;background:#f8f8f8;
 border:1px solid #ddd;border-radius:3px;padding:1px 3px;word-break:break-all}
pre{font:12px/18px Menlo,'DejaVu Sans Mono',monospace;background:#f8f8f8;border:1px solid #ddd;
 border-radius:4px;padding:8px;margin:4px 0;white-space:pre-wrap;word-break:break-all}
.thread{border-left:2px solid #ddd;margin:6px 0 0;padding-left:14px}
.thread>.note{margin:0 0 8px}img{max-width:520px;border:1px solid #ddd;border-radius:8px}
"""


@dataclass(frozen=True, slots=True)
class Shown:
    """A message as it stands: its blocks, what is noted beside its sender, and its thread.

    `picture` is a PNG that was shared in the thread.
    """

    blocks: list[dict[str, Any]]
    note: str = ""
    replies: list[Shown] = field(default_factory=list)
    picture: bytes = b""


def page(messages: Iterable[Shown]) -> str:
    """The messages below each other, as a page of its own."""
    shown = "".join(_message(each) for each in messages)
    return f'<!doctype html><meta charset="utf-8"><style>{STYLE}</style>{shown}'


def _message(shown: Shown) -> str:
    body = "".join(_block(each) for each in shown.blocks)
    replies = [_message(each) for each in shown.replies]
    if shown.picture:
        data = base64.b64encode(shown.picture).decode()
        image = f'<div class="note">loss.png</div><img src="data:image/png;base64,{data}">'
        replies.append(_from_us(image, ""))
    if replies:
        count = f"{len(replies)} {'reply' if len(replies) == 1 else 'replies'}"
        body += f'<div class="thread"><div class="note">{count}</div>{"".join(replies)}</div>'
    return _from_us(body, shown.note)


def _from_us(body: str, note: str) -> str:
    return (
        '<div class="message"><div class="icon">l</div><div><span class="name">ldlm-monitor</span>'
        f'<span class="badge">APP</span><span class="note">{html.escape(note)}</span>'
        f"{body}</div></div>"
    )


def _block(block: Mapping[str, Any]) -> str:
    match block:
        case {"type": "header", "text": text}:
            return f'<div class="header">{_text(text)}</div>'
        case {"type": "section", "text": text}:
            return f'<div class="section">{_text(text)}</div>'
        case {"type": "section", "fields": texts}:
            cells = "".join(f"<div>{_text(each)}</div>" for each in texts)
            return f'<div class="section fields">{cells}</div>'
        case {"type": "context", "elements": texts}:
            return f'<div class="context">{" ".join(_text(each) for each in texts)}</div>'
    raise ValueError(f"a block that is not drawn: {block}")


def _text(text: Mapping[str, Any]) -> str:
    match text:
        case {"type": "plain_text", "text": str(content)}:
            return html.escape(content)
        case {"type": "mrkdwn", "text": str(content), "verbatim": True}:
            return _mrkdwn(content)
    raise ValueError(f"a text that is not drawn: {text}")


def _mrkdwn(text: str) -> str:
    """Slack's `&amp;`, `&lt;` and `&gt;` are HTML's; nothing else of markup may be left."""
    if "<" in text or ">" in text:
        raise ValueError(f"a link or a mention, which is not drawn: {text[:200]}")
    shown = ""
    for number, part in enumerate(re.split(r"```\n?(.*?)\n?```", text, flags=re.DOTALL)):
        shown += f"<pre>{part}</pre>" if number % 2 else _inline(part)
    return shown


def _inline(text: str) -> str:
    shown = ""
    for number, part in enumerate(re.split(r"`([^`\n]+)`", text)):
        bold = re.sub(r"(?<!\w)\*([^*\n]+)\*(?!\w)", r"<b>\1</b>", part)
        shown += f"<code>{part}</code>" if number % 2 else bold.replace("\n", "<br>")
    return shown
