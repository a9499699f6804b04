"""Which batch and which gradients were at hand when the numbers broke: written, read, shown."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ldlm_callback.gradients import course

if TYPE_CHECKING:
    from ldlm_monitor.base.snapshot import Snapshot


HOSTILE = '<script>alert("doc")</script>\x1b[31m\nrow'


def noisy(steps: int) -> Iterator[tuple[int, float]]:
    return ((step, 2.0 + 0.1 * (step * 37 % 11) / 11) for step in range(1, steps + 1))


def replayed(folder: Path) -> "Snapshot":
    from ldlm_monitor.finished.playback.log_replay import Replay
    from ldlm_monitor.service.config import Settings

    replay = Replay(Settings(files=(str(folder),)))
    assert [*replay.transitions()]
    return replay.snapshot()


@pytest.mark.usefixtures("monitor_reads")
def test_incident_report_and_page_show_the_batch_and_no_text_of_it_is_code(
    health: Callable, tmp_path: Path
) -> None:
    from ldlm_monitor.finished.report.document import report
    from ldlm_monitor.finished.report.html import page

    callback = health()
    for step, loss in noisy(30):
        callback.on_step(step, loss=math.nan if step == 30 else loss, batch_ids=[HOSTILE, 17])
    callback.close()
    snapshot = replayed(tmp_path)
    (incident,) = snapshot.incidents
    assert "batch_ids" in [each.kind for each in incident.symptoms]
    assert any("the batch of step 30 on rank 0" in line.text for line in incident.excerpt)
    text = page(report(snapshot))
    assert "the batch of step 30 on rank 0 (loss NaN): 2 rows: &lt;script&gt;" in text
    assert "<script>alert" not in text
    assert "\x1b" not in text


torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.usefixtures("monitor_reads")
def test_the_incident_names_the_group_whose_gradients_broke_first(
    health: Callable, reported: Callable, tmp_path: Path
) -> None:
    """The backward pass comes from the last block; the one before it divides by nothing."""
    blocks = {name: torch.nn.Linear(4, 4) for name in ("embed", "middle", "head")}
    model = torch.nn.ModuleDict(blocks)
    callback = health()
    callback.watch(model, every=100)
    for step in range(1, 31):
        hidden = model["middle"](model["embed"](torch.ones(2, 4)))
        if step >= 29:
            # The square root of 0 has a derivative without bound; times 0 that is NaN.
            hidden = hidden + (hidden * 0).sqrt()
        loss = model["head"](hidden).square().mean()
        model.zero_grad()
        loss.backward()
        callback.on_step(step, loss=loss if step < 29 else math.nan)
    callback.close()
    found = [row["message"] for row in reported("event") if "grad" in row["message"]]
    assert found == [
        "grad_norm_middle is NaN at step 30 on rank 0: "
        + course({"grad_norm_embed": math.nan, "grad_norm_middle": math.nan, "grad_norm_head": 1.0})
    ]
    (incident,) = replayed(tmp_path).incidents
    assert found[0] in [each.message for each in incident.symptoms]
    assert found[0] in [line.text for line in incident.excerpt]
