"""The line of a playback: whether it plays, how fast, how far it is, and the keys that steer it."""

from __future__ import annotations

from ldlm_monitor.model.queries import Played
from ldlm_monitor.tui.draw import Glyphs, Line, Span, bar, fit, width_of
from ldlm_monitor.tui.words import clock, span

_KEYS = (("p", "pause"), ("<>", "speed"), ("A", "next alert"), ("R", "begin again"))
_LEAST_BAR = 10


def player_line(played: Played, width: int, glyphs: Glyphs) -> Line:
    """One line of `width` cells; what has no room is left out, the keys first."""
    line: Line = [*_state(played), Span(f" {_speed(played.speed)} ", "title")]
    line += [Span(f" {clock(played.at)} ")]
    length = max(played.end - played.start, 1e-9)
    done = f" {span(played.at - played.start)} of {span(played.end - played.start)} "
    keys: Line = []
    for key, meaning in _KEYS:
        keys += [Span(f" {key} ", "key"), Span(f"{meaning} ", "dim")]
    room = width - width_of(line) - len(done)
    if room - width_of(keys) >= _LEAST_BAR:
        room -= width_of(keys)
    else:
        keys = []
    if room >= _LEAST_BAR:
        share = (played.at - played.start) / length
        line += [Span(" "), *bar(share, room - 2, glyphs), Span(" ")]
    line += [Span(done, "dim"), *keys]
    return line if width_of(line) <= width else [Span(fit(f" {clock(played.at)}", width, glyphs))]


def _state(played: Played) -> Line:
    if played.seeks:
        return [Span(" seeking an alert ", "warning")]
    if played.alert:
        return [Span(f" stopped at {played.alert} ", "critical")]
    if played.has_ended:
        return [Span(" the end ", "title")]
    return [Span(" playing ", "ok") if played.is_playing else Span(" paused ", "warning")]


def _speed(speed: float) -> str:
    return f"{speed:g}x" if speed < 1e4 else f"{speed / 1000:g}kx"
