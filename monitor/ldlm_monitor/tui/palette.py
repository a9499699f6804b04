"""Colours by meaning, distinguishable without red-green vision.

The hues are those of M. Okabe and K. Ito, "Color Universal Design" (2008); words and glyphs
have the same information, so that nothing is lost without colour.
"""

from __future__ import annotations

from functools import lru_cache

from rich.style import Style

_DARK = {
    "ok": "#00b386",
    "info": "#56b4e9",
    "warning": "#f0e442",
    "error": "#e69f00",
    "critical": "bold #ff7733",
    "accent": "#56b4e9",
    "curve": "#56b4e9",
    "curve2": "#e69f00",
    "curve3": "#00b386",
    "curve4": "#cc79a7",
    "curve5": "#f0e442",
    "dim": "#8a919c",
    "raw": "#45658a",
    "title": "bold #ffffff",
    "key": "bold #56b4e9",
    "found": "bold #000000 on #f0e442",
    "cursor": "bold on #2b3c52",
    "here": "bold reverse",
    "badge": "bold #000000 on #ff7733",
}
_LIGHT = {
    **_DARK,
    "ok": "#007a5a",
    "info": "#0072b2",
    "warning": "#8a6d00",
    "error": "#a85b00",
    "critical": "bold #c04000",
    "accent": "#0072b2",
    "curve": "#0072b2",
    "curve2": "#a85b00",
    "curve3": "#007a5a",
    "curve4": "#a0437a",
    "curve5": "#8a6d00",
    "dim": "#5f6773",
    "raw": "#9db8d2",
    "title": "bold #000000",
    "key": "bold #0072b2",
    "cursor": "bold on #c3d7ea",
}
CURVES = ("curve", "curve2", "curve3", "curve4", "curve5")
HEALTH_STYLE = {
    "HEALTHY": "ok",
    "WARNING": "warning",
    "UNHEALTHY": "error",
    "CRITICAL": "critical",
    "KILLED": "error",
    "CRASHED": "critical",
}
"""By `RunView.headline`."""
STATE_STYLE = {"stalled": "critical", "crashed": "critical", "killed": "error", "finished": "dim"}
SEVERITY_STYLE = {name: name for name in ("info", "warning", "error", "critical")}


@lru_cache(maxsize=256)
def style(name: str, *, dark: bool) -> Style:
    """The style of a name; `a+b` is both. An unknown name changes nothing."""
    colours = _DARK if dark else _LIGHT
    found = Style()
    for part in name.split("+"):
        if part in colours:
            found += Style.parse(colours[part])
    return found
