"""The screen's own settings; imported without Textual."""

from pydantic import Field

from ldlm_monitor.base.setting_types import Section


class Look(Section):
    """How the screen looks, and its keys."""

    theme: str = "auto"
    """A theme of the palette (Ctrl+P), such as `textual-light` or `nord`; `auto`: light or dark, as
    the terminal says its background is (OSC 11), or else `COLORFGBG`; dark if neither does."""
    keys: dict[str, str] = Field(default={}, examples=[{"everywhere.quit": "Q", "run.zoom": "i"}])
    """Keys by what they do, `page.title` as the palette names it; several with commas."""
