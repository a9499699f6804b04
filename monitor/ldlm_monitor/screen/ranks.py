"""The ranks of a run as a grid: which are behind, silent, or failed first."""

from dataclasses import dataclass

from ldlm_monitor.base.snapshot import RankView, RunView
from ldlm_monitor.base.text.format import counted
from ldlm_monitor.screen.draw import Glyphs, Line, StyledSpan, fit, safe
from ldlm_monitor.screen.page_context import whole_duration

_BIG = 128  # more ranks are a character each. A choice: 128 numbers fill 9 lines of 80 cells
# Styles and words by `_RankCell.kind`, from 0 (good) to 4 (worst).
_STYLES = ("ok", "info", "warning", "error", "critical")
_WORDS = ("in step", "behind", "far behind", "silent", "failed first")
_SILENT_SECONDS = 30.0
"""A rank is silent without records for this time and for the stall limit. A choice: less takes
pauses of output for silence, more shows silence later."""


@dataclass(frozen=True, slots=True)
class _RankCell:
    rank: RankView
    lag: int  # steps behind the furthest rank
    kind: int  # index in `_STYLES` and `_WORDS`


def _cells(run: RunView) -> list[_RankCell]:
    steps = [rank.step for rank in run.ranks if rank.step is not None]
    newest = max((rank.seen_at for rank in run.ranks), default=0.0)
    front = max(steps, default=0)
    far = max(10, front // 100)  # steps. A choice: less marks ranks that log rarely, more is late
    patience = max(run.stall_limit_seconds or 0.0, _SILENT_SECONDS)
    cells = []
    for rank in run.ranks:
        lag = 0 if rank.step is None else front - rank.step
        if rank.rank == run.failed_rank:
            kind = 4
        elif newest - rank.seen_at > patience:
            kind = 3
        else:
            kind = 2 if lag >= far else 1 if lag > 1 else 0  # 1: it may log a moment later
        cells.append(_RankCell(rank, lag, kind))
    return cells


def _verdict(run: RunView, cells: list[_RankCell], glyphs: Glyphs) -> Line:
    """The number of ranks, the rank that failed first, and the rank furthest behind or silent."""
    line = [StyledSpan(f" {counted(len(cells), 'rank')}", "title")]
    if run.world_size and run.world_size > len(cells):
        line.append(StyledSpan(f" of {run.world_size} report steps", "dim"))
    if run.failed_rank is not None:
        failed = next((each for each in run.ranks if each.rank == run.failed_rank), None)
        name = f"rank {run.failed_rank}" if failed is None else _named(failed, glyphs)
        line.append(StyledSpan(f"   {name} failed first", "critical"))
    last = max(cells, key=lambda cell: (cell.lag > 1 or cell.kind == 3, cell.lag, cell.kind))
    if last.kind == 3 or last.lag > 1:
        facts = [f"{last.lag} steps behind"] if last.lag > 1 else []
        if last.rank.phase:  # cut to 20 cells, so that the verdict fits one line
            facts.append(f"in {fit(safe(last.rank.phase, glyphs), 20, glyphs).rstrip()}")
        if last.kind == 3:
            newest = max(cell.rank.seen_at for cell in cells)
            facts.append(f"silent for {whole_duration(newest - last.rank.seen_at)}")
        text = f"   {_named(last.rank, glyphs)} is {', '.join(facts)}"
        line.append(StyledSpan(text, _STYLES[last.kind]))
    elif not run.reasons and run.health != "READING":
        line.append(StyledSpan("   all in step", "ok"))
    return line


def _named(rank: RankView, glyphs: Glyphs) -> str:
    """A rank, with its coordinates in the dimensions of parallelism in brackets if it has any."""
    return f"rank {rank.rank}" + (f" ({safe(rank.mesh, glyphs)})" if rank.mesh else "")


def verdict(run: RunView, glyphs: Glyphs) -> list[Line]:
    """The line about a run's ranks; none for a run whose ranks log no steps."""
    return [_verdict(run, _cells(run), glyphs)] if run.ranks else []


def grid(run: RunView, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Verdict, grid and, if there is room, legend, in at most `height` lines."""
    if not run.ranks:
        return []
    cells = _cells(run)
    verdict, each, across = _verdict(run, cells, glyphs), *_layout(cells, width)
    lines = [verdict, *_rows(cells, across, each, glyphs)]
    if len(lines) > height:  # no room for all: the worst ranks
        each = _cell_width(cells)
        across = max((width - 2) // each, 1)
        cells.sort(key=lambda cell: (-cell.kind, -cell.lag))
        return [verdict, *_rows(cells[: across * max(height - 1, 1)], across, each, glyphs)][
            :height
        ]
    legend = [
        StyledSpan(f" {glyphs.cells[kind]} {word} ", _STYLES[kind])
        for kind, word in enumerate(_WORDS)
    ]
    return [*lines, [StyledSpan(" "), *legend]][: max(height, 0)]


def _layout(cells: list[_RankCell], width: int) -> tuple[int, int]:
    """The width of a rank's cell, and ranks in a line; if the width is 1, lines have a label."""
    if len(cells) <= _BIG:
        return (each := _cell_width(cells)), max((width - 2) // each, 1)
    across = max(width - 8, 1)  # a label takes 6 cells, a margin 2
    # Multiples of 32 ranks: on nodes of 4 or 8 GPUs, a column has the same GPU of each node.
    return 1, max(across // 32 * 32, min(across, 32))


def _rows(cells: list[_RankCell], across: int, width: int, glyphs: Glyphs) -> list[Line]:
    """Lines of `across` cells each; the label of a line is the number of its first rank."""
    parts = [cells[start : start + across] for start in range(0, len(cells), across)]
    return [
        [
            StyledSpan(f" {part[0].rank.rank:>4} " if width == 1 else " ", "dim"),
            *(_drawn(cell, width, glyphs) for cell in part),
        ]
        for part in parts
    ]


def _text(cell: _RankCell) -> str:
    return f"{cell.rank.rank}" + (f" -{cell.lag}" if cell.lag > 1 else "")


def _cell_width(cells: list[_RankCell]) -> int:
    """Cells for a glyph, the longest number with its lag, and a blank."""
    return max(len(_text(cell)) for cell in cells) + 2


def _drawn(cell: _RankCell, width: int, glyphs: Glyphs) -> StyledSpan:
    glyph = glyphs.cells[cell.kind]
    text = glyph if width == 1 else fit(f"{glyph}{_text(cell)}", width, glyphs)
    return StyledSpan(text, _STYLES[cell.kind])


def needed_height(run: RunView, width: int) -> int:
    """The number of lines of verdict, rows and legend; 0 without ranks."""
    return 2 + -(-len(run.ranks) // _layout(_cells(run), width)[1]) if run.ranks else 0
