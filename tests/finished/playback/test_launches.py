"""Several launches in one log whose lines have a loss and no step."""

from pathlib import Path

import pytest

from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings

DIED = """Traceback (most recent call last):
  File "train.py", line 88, in <module>
    main()
ValueError: Target size (torch.Size([4])) must be the same as input size
"""


def losses(level: float, lines: int = 80) -> str:
    return "".join(
        f"\tlm_loss: {level + 0.1 + at % 3 / 10:.4f}, ppl: 30.7, loss: {level + at % 3 / 10:.4f}\n"
        for at in range(lines)
    )


@pytest.mark.parametrize(("between", "rings"), [(DIED, False), ("", True)])
def test_the_losses_of_a_launch_are_not_compared_with_those_of_one_that_died(
    tmp_path: Path, between: str, rings: bool
) -> None:
    """The next launch may be of another model, or begin from scratch."""
    log = tmp_path / "worker.log"
    log.write_text(losses(3.0) + between + losses(11.0) + "goodbye\n")
    replay = Replay(Settings(files=(str(log),), companions=False))
    fired = {each.alert for each in replay.transitions() if each.state == "firing"}
    assert ("LossDiverging" in fired) is rings
