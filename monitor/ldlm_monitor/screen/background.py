"""Whether the terminal's background is light: asked of the terminal itself, guessed before that.

Textual (8.2) does not ask, and takes an answer for pressed keys. So its parser of the input is
wrapped: the answer is taken out whenever it comes, and nothing waits for it. After the question for
the colour (OSC 11) stands one that every terminal answers (DA1), which says that no more will come.
"""

import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from textual import constants
from textual._xterm_parser import XTermParser
from textual.color import Color
from textual.drivers import linux_driver
from textual.message import Message

QUESTION = "\x1b]11;?\x1b\\\x1b[c"
_ANSWER = re.compile(
    r"\x1b\]11;rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})[^\x07\x1b]*(?:\x07|\x1b\\)"
)
_LAST = re.compile(r"\x1b\[\?[\d;]*c")
_PART = re.compile(r"\x1b(?:\](?:1(?:1(?:;[^\x07\x1b]{0,40}\x1b?)?)?)?|\[(?:\?[\d;]{0,20})?)?\Z")
"""The beginning of an answer at the end of what was read: the rest is still on its way."""
_KEY_PARTS = 2  # characters of such a beginning that a person may have typed: Esc, Alt+[, Alt+]


def light_or_dark(environ: Mapping[str, str]) -> str:
    """Textual's theme for the terminal's background, by `COLORFGBG` (rxvt, Konsole, iTerm2).

    Its last number is the background's colour: 7 (white) and 9 to 15 (bright ones) are light.
    """
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    is_light = background.isdecimal() and int(background) in (7, *range(9, 16))
    return "textual-light" if is_light else "textual-dark"


@dataclass
class BackgroundSeen(Message):
    """The terminal has answered; `theme` is Textual's for its background."""

    theme: str


class AnswerParser(XTermParser):
    """Textual's parser of a terminal's input, with the answers to `QUESTION` taken out."""

    def __init__(self, debug: bool = False) -> None:
        self._held, self._held_at = "", 0.0
        self._awaits = True
        super().__init__(debug)

    def feed(self, data: str) -> Iterable[Message]:
        """The messages of what was read; an empty `data` is the end."""
        text, self._held = self._held + data, ""
        if self._awaits and data:
            if answer := _ANSWER.search(text):
                text = text[: answer.start()] + text[answer.end() :]
                yield BackgroundSeen(_theme(*answer.groups()))
            if last := _LAST.search(text):
                text = text[: last.start()] + text[last.end() :]
                self._awaits = False
            elif part := _PART.search(text):
                text, self._held = text[: part.start()], part[0]
                self._held_at = time.monotonic()
        if text or not data:
            yield from super().feed(text)

    def tick(self) -> Iterable[Message]:
        """The messages of what no more input came after; at first, that of the Esc key."""
        is_key = 0 < len(self._held) <= _KEY_PARTS
        if is_key and time.monotonic() - self._held_at >= constants.ESCAPE_DELAY:
            text, self._held = self._held, ""
            yield from super().feed(text)
        yield from super().tick()


def _theme(*parts: str) -> str:
    """The theme for a colour whose parts are hexadecimal, of one to four digits."""
    red, green, blue = (round(255 * int(part, 16) / (16 ** len(part) - 1)) for part in parts)
    return "textual-light" if Color(red, green, blue).brightness > 0.5 else "textual-dark"


class AskingDriver(linux_driver.LinuxDriver):
    """Textual's driver of a terminal, which asks for the background whenever it takes it over."""

    def start_application_mode(self) -> None:
        """Take the terminal over, and ask."""
        # Its thread of input makes its own parser, by this name, and leaves no other way in.
        setattr(linux_driver, "XTermParser", AnswerParser)  # noqa: B010 # a class, for mypy
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self.write(QUESTION)
        self.flush()


def asking_driver(environ: Mapping[str, str] = os.environ) -> type[AskingDriver] | None:
    """The driver that asks; None in a browser, which Textual reaches by a driver of its own."""
    return None if "TEXTUAL_DRIVER" in environ else AskingDriver
