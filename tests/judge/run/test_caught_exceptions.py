"""Exceptions that a program caught, and launches that follow each other in one file.

The logs have no times: their order alone shows that a training went on.
"""

from pathlib import Path

import pytest

from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings

BANNER = "number of parameters: 123.59M\n"


def traceback(line: int = 8, message: str = "bad batch") -> str:
    return (
        'Traceback (most recent call last):\n  File "/home/u/train.py", line 12, in <module>\n'
        f'    main()\n  File "/home/u/train.py", line {line}, in main\n'
        f"    raise ValueError(batch)\nValueError: {message}\n"
    )


def steps(first: int, last: int) -> str:
    return "".join(
        f"iter {step}: loss {4 - step / 100_000:.5f}, time 100.00ms, mfu 30.00%\n"
        for step in range(first, last)
    )


def state(path: Path, text: str) -> str:
    path.write_text(text)
    replay = Replay(Settings(files=(str(path),), companions=False))
    for _ in replay.transitions():
        pass
    (run,) = replay.snapshot().runs
    return run.state


SKIPPED = "".join(traceback(message=f"batch {step}") + steps(step, step + 2) for step in range(99))
FAILED = BANNER + traceback(3)

LOGS = {
    "caught at every other step": (steps(0, 1) + SKIPPED, "running"),
    "caught at every other step, and then another": (
        steps(0, 1) + SKIPPED + traceback(40),
        "crashed",
    ),
    "caught often, and not at the end": (steps(0, 1) + SKIPPED + traceback(), "crashed"),
    "caught often, and last before the words of a normal end": (
        steps(0, 1) + SKIPPED + traceback() + "Training finished!\n",
        "finished",
    ),
    "never caught, before words that a script prints all the same": (
        steps(0, 9) + traceback() + "Training finished!\n",
        "crashed",
    ),
    "caught at more places than are kept": (
        "".join(traceback(line) + steps(4 * line, 4 * line + 4) for line in range(1, 200)),
        "running",
    ),
    "thirty launches, of which the last trains": (
        29 * FAILED + BANNER + steps(0, 500),
        "running",
    ),
    "thirty launches that train": (
        29 * (BANNER + steps(0, 50) + traceback()) + BANNER + steps(0, 50),
        "running",
    ),
    "thirty launches that fail alike": (30 * (BANNER + steps(0, 50) + traceback()), "crashed"),
    "a rank that fails while another prints one step more": (
        BANNER + steps(0, 50) + traceback() + steps(50, 51),
        "crashed",
    ),
}


@pytest.mark.parametrize(("text", "expected"), LOGS.values(), ids=LOGS.keys())
def test_a_run_has_crashed_if_it_did_not_go_on(text: str, expected: str, tmp_path: Path) -> None:
    assert state(tmp_path / "train.log", text) == expected


def logged(at: int, level: str, text: str) -> str:
    return f"2025-11-01 10:{at // 60:02}:{at % 60:02},000 {level} __main__: {text}\n"


BEFORE = "".join(logged(20 * at, "INFO", f"step {at}: loss 2.{at}") for at in range(30))
AFTER = logged(640, "INFO", "step 30: loss 2.1") + logged(660, "INFO", "step 31: loss 2.0")


@pytest.mark.parametrize(
    ("text", "crashed", "state"),
    [
        (logged(590, "ERROR", "step failed: bad batch") + traceback() + AFTER, False, "running"),
        (logged(590, "ERROR", "step failed: bad batch") + traceback(), True, "crashed"),
        (logged(590, "INFO", "step failed: bad batch") + traceback() + AFTER, True, "running"),
        (3 * (logged(590, "ERROR", "step failed") + traceback()) + AFTER, False, "running"),
    ],
)
def test_an_exception_that_a_logger_prints_may_take_as_long_as_steps_do(
    text: str, crashed: bool, state: str, tmp_path: Path
) -> None:
    """The program caught it: its next step shows it, or the end of its log."""
    path = tmp_path / "train.log"
    path.write_text(BEFORE + text)
    replay = Replay(Settings(files=(str(path),), companions=False))
    fired = {each.alert for each in replay.transitions() if each.state == "firing"}
    assert ("TrainingCrashed" in fired) == crashed
    (run,) = replay.snapshot().runs
    assert run.state == state
