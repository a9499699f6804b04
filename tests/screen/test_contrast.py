"""What is drawn can be read: WCAG AA on every page, in every theme, measured on what is drawn."""

from collections.abc import Iterator

import pytest
from textual.color import Color
from textual.theme import BUILTIN_THEMES

from ldlm_monitor.screen.draw import contrast
from tests.screen.screens import Screen, Shown, on_screen

FAINT = frozenset("┈─│▎")
"""The grid of a chart and lines between parts: nothing is said by them alone (WCAG 2.1, 1.4.11)."""
OWN = [name for name in BUILTIN_THEMES if not name.startswith("ansi")]
"""Themes with colours of their own; the others have those of the terminal, whatever they are."""
ALWAYS = ("textual-dark", "textual-light", "solarized-light", "nord")
PAGES = [(), ("1",), ("2",), ("2", "s", "c"), ("3",), ("4",), ("5",), ("6",), ("question_mark",)]


def drawn(screen: Screen) -> Iterator[tuple[str, Color, Color]]:
    """The texts in front, with the colours of their letters and of what is behind them."""
    top, dialogs = screen.app.screen, screen.app.screen.query(".box")
    area = dialogs.first().region if dialogs else top.region  # a dialog dims what it is over
    for strip in top._compositor.render_strips(screen.app.size)[area.y : area.bottom]:
        for text, style, _ in strip.crop(area.x, area.right):
            if style and style.color and style.bgcolor and text.strip():
                front, back = style.color.triplet, style.bgcolor.triplet
                assert front is not None, text
                assert back is not None, text
                yield text.strip(), Color(*front), Color(*back)


@pytest.mark.parametrize(
    "theme",
    [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.long) for name in OWN],
)
def test_text_and_curves_stand_out_from_what_is_behind_them(shown: Shown, theme: str) -> None:
    """4.5 to 1 for text, 3 to 1 for what is only drawn, such as a curve or a scrollbar."""
    faint: set[tuple[str, ...]] = set()

    async def steps(screen: Screen) -> None:
        screen.app.theme = theme
        for keys in PAGES:
            await screen.press(*keys)
            for text, front, back in drawn(screen):
                is_text = any(each.isalnum() and each.isascii() for each in text)
                least = 4.5 if is_text else 3.0
                # Colours have 256 levels, so a ratio may be a hundredth short of what was asked.
                if not FAINT.issuperset(text) and contrast(front, back) < least - 0.01:
                    faint.add((text[:30], front.hex, back.hex, *keys))

    on_screen(shown.source, steps, size=(170, 44))
    assert faint == set()
