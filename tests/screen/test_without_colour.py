"""Without colour, words and glyphs say the same."""

import pytest
from rich.color import Color
from textual.filter import NoColor

from tests.screen.screens import Screen, Shown, on_screen


def test_without_colour_words_and_glyphs_say_everything(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NO_COLOR (no-color.org): not even a shade of grey is written."""
    monkeypatch.setenv("NO_COLOR", "1")

    async def steps(screen: Screen) -> None:
        (without,) = (each for each in screen.app._filters if isinstance(each, NoColor))
        strips = screen.app.screen._compositor.render_strips(screen.app.size)
        background = screen.app.screen.background_colors[1]
        styles = [s.style for strip in strips for s in strip.apply_filter(without, background)]
        colours = {colour for style in styles if style for colour in (style.color, style.bgcolor)}
        assert colours <= {None, Color.parse("default")}
        assert "◆ crashed" in screen.text

    on_screen(shown.source, steps)
