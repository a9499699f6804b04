"""A light first pass over a finished file: what its lines tell of time.

tqdm's elapsed field is the only clock of an MM-LDLM log; its JSONL rows have
none, but their steps line up with the bar's.
"""

from __future__ import annotations

from ldlm_monitor.model.chunk import ClockMark
from ldlm_monitor.parse.patterns import compile_pattern

_BAR = compile_pattern(
    r"(?P<bar>Training|Eval|Skipping batches): +\d+%\|[^|\r\n]*\| *(?P<step>\d{1,18})/\d{1,18} "
    r"\[(?P<elapsed>\d[\d:]*)[<,]"
)
_ROW = compile_pattern(
    r'(?m)^ *\{[^\n]*?"(?:step|global_step|iteration|current_steps|iter|num_updates)": ?'
    r"(?P<step>\d{1,18})[,}]"
)


def clock_marks(data: bytes, offset: int = 0, *, rows: bool = False) -> list[ClockMark]:
    """The marks of a file's bytes, in order; `offset` is that of the first byte.

    Text: every training bar with its step and elapsed time, and those of an evaluation or of
    skipped batches, which are `inner`. `rows` (the file is JSON lines): every row with its step.
    """
    if rows:
        return [
            ClockMark(offset + match.span()[0], int(match.groups()[0] or 0), None)
            for match in _ROW.finditer(data)
        ]
    marks: list[ClockMark] = []
    if b"%" not in data:  # one byte is looked for ten times as fast as the pattern
        return marks
    begin = 0
    for match in _BAR.finditer(data):
        start, end = match.span()
        before = max(data.rfind(b"\r", begin, start), data.rfind(b"\n", begin, start))
        bar, step, elapsed = match.groups()
        marks.append(
            ClockMark(
                offset + (begin if before < 0 else before + 1),
                int(step or 0),
                seconds(elapsed or b"0"),
                inner=bar != b"Training",
            )
        )
        begin = end
    return marks


def seconds(elapsed: bytes) -> float:
    """Seconds of tqdm's `MM:SS` or `H:MM:SS`; hours are unbounded."""
    total = 0
    for part in elapsed.split(b":"):
        total = total * 60 + int(part[:18] or b"0")
    return float(total)
