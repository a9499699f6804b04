"""A phase that explains a pause lasts up to the next record of another kind, and no longer."""

from pathlib import Path

import pytest

from ldlm_monitor.base.goodput import Goodput
from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings

LOADS = "@ ldlm-monitor run: attempt 2 starts: []"


def clock(second: float) -> str:
    return (
        f"2026-07-08 {3 + int(second) // 3600:02}:{int(second) // 60 % 60:02}:{second % 60:06.3f}Z"
    )


def spent(path: Path, lines: list[tuple[float, str]]) -> Goodput:
    """The account of a log whose lines have times where they have an `@`."""
    path.write_text("".join(f"{text.replace('@', clock(at))}\n" for at, text in lines))
    played = Replay(Settings(files=(str(path),), companions=False))
    for _ in played.transitions():
        pass
    (run,) = played.snapshot().runs
    assert run.goodput is not None
    return run.goodput


def losses(found: Goodput) -> dict[str, float]:
    return {each.what: each.seconds for each in found.losses if each.what not in ("start", "end")}


def steps(first: int, count: int, at: float) -> list[tuple[float, str]]:
    return [(at + each, f"@ step {first + each} loss 2.5") for each in range(count)]


SAVES = "@ INFO saving checkpoint at iteration 60 to /out"
SAVED = "@ INFO successfully saved checkpoint from iteration 60 to /out"


@pytest.mark.parametrize(
    ("between", "lost"),
    [
        ([(60, SAVES), (68, SAVED)], {"checkpoint": 8, "stall": 41}),
        ([(60, SAVES)], {"checkpoint": 49}),
        ([(68, SAVED)], {"checkpoint": 9, "stall": 40}),
        ([(60, SAVES), (68, SAVED), (70, LOADS)], {"checkpoint": 8, "restart": 41}),
        ([], {"stall": 49}),
    ],
    ids=["begins and ends", "begins", "ends", "then a restart", "nothing"],
)
def test_a_phase_ends_with_the_next_record_of_another_kind(
    between: list[tuple[float, str]], lost: dict[str, float], tmp_path: Path
) -> None:
    lines = [*steps(0, 60, 0.0), *between, *steps(60, 60, 109.0)]
    found = losses(spent(tmp_path / "a.log", lines))
    assert found == {what: pytest.approx(seconds, abs=0.1) for what, seconds in lost.items()}


def test_rows_without_times_between_two_checkpoints_are_no_checkpoint(tmp_path: Path) -> None:
    """As Hugging Face's trainer logs without bars: a hundred rows of 3 s, then 8 s of saving."""
    lines = [(0.0, "[INFO|trainer.py:2300] @ >> ***** Running training *****")]
    at = 0.0
    for part in range(6):
        lines += [
            (at, f"{{'loss': {2 - (part * 100 + row) / 600:.4f}, 'epoch': {part + row / 100:.2f}}}")
            for row in range(100)
        ]
        at += 300.0
        lines.append((at, f"[INFO|trainer.py:3900] @ >> Saving model checkpoint to /out/c-{part}"))
        at += 8.0
        lines.append((at, f"[INFO|tokenization.py:2500] @ >> tokens saved in /out/c-{part}/t.json"))
    lines.append((at, "{'train_runtime': 1848.0, 'train_loss': 1.5, 'epoch': 6.0}"))
    found = spent(tmp_path / "a.log", lines)
    assert found.step_seconds == pytest.approx(3.08)
    assert losses(found) == {}
    assert found.share > 0.97
