"""Which batch and which gradients were at hand when the numbers broke: written, read, shown."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ldlm_callback.batches import Spikes, said
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


def batches(rows: list[dict]) -> list[dict]:
    return [row for row in rows if row.get("kind") == "batch_ids"]


def test_the_rows_of_the_batch_are_written_where_the_loss_spikes_or_breaks(
    health: Callable, reported: Callable
) -> None:
    callback = health()
    for step, loss in noisy(60):
        spikes = {40: 9.0, 50: math.nan, 51: math.nan}
        names = [f"doc-{step}-{row}" for row in range(3)]
        callback.on_step(step, loss=spikes.get(step, loss), batch_ids=names)
    callback.close()
    found = batches(reported("event"))
    assert [row["step"] for row in found] == [40, 50]
    assert found[0]["message"] == (
        "the batch of step 40 on rank 0 (loss 9.0): 3 rows: doc-40-0, doc-40-1, doc-40-2"
    )
    assert found[1]["fields"]["batch_ids"] == ["doc-50-0", "doc-50-1", "doc-50-2"]


def test_a_noisy_loss_that_falls_has_no_spike() -> None:
    spikes = Spikes()
    losses = [8.0 * math.exp(-step / 300) + 0.2 * math.sin(step * 1.7) for step in range(3000)]
    assert not any(map(spikes.observe, losses))


def test_names_are_bounded_and_of_any_kind_that_does_not_wait_for_a_device() -> None:
    class Names:
        def __len__(self) -> int:
            raise RuntimeError("the training's own")

    names, text = said(["x" * 1000] * 5000)
    assert ({len(name) for name in names}, len(names)) == ({64}, 64)
    assert text.startswith("5000 rows: ")
    assert len(text) < 250
    assert said(7) == (["7"], "row 7")
    assert said((1, None, 2**70)) == (["1", "<NoneType>", "<int>"], "3 rows: 1, <NoneType>, <int>")
    assert said(Names()) == ([], "")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    assert said(torch.arange(4).reshape(2, 2))[1] == "4 rows: 0, 1, 2, 3"
    assert said(torch.arange(4).numpy())[1] == "4 rows: 0, 1, 2, 3"
    assert said(torch.ones(3, device="meta")) == ([], "")


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
def test_a_window_has_norm_and_shares_of_zeros_and_of_what_is_not_finite_by_group(
    health: Callable, reported: Callable, tmp_path: Path
) -> None:
    model = torch.nn.ModuleDict({"embed": torch.nn.Linear(4, 4), "head": torch.nn.Linear(4, 1)})
    callback = health()
    callback.watch(model, every=2)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    model["head"].weight.grad[0, :2] = 3.0
    model["head"].bias.grad[0] = 4.0
    for step in range(1, 4):
        callback.on_step(step, loss=1.0)
    callback.close()
    window = {name: value for row in reported("step") for name, value in row.items() if "_" in name}
    window = {name: value for name, value in window.items() if name.startswith("grad_")}
    assert window == {
        "grad_norm_embed": 0.0,
        "grad_zeros_embed": 1.0,
        "grad_nonfinite_embed": 0.0,
        "grad_norm_head": pytest.approx(34**0.5),
        "grad_zeros_head": pytest.approx(0.4),
        "grad_nonfinite_head": 0.0,
    }
    exported = {dict(point.labels).get("name") for point in replayed(tmp_path).points}
    assert {*window} <= exported


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


def test_the_last_broken_group_is_named_unless_it_may_be_the_loss() -> None:
    row = {"grad_norm_a": math.nan, "grad_norm_b": math.nan, "grad_norm_c": 1.0}
    assert course(row) == "first in b, of 2 of 3 groups that are not finite (a, b)"
    row = {"loss": 1.0, "grad_norm": 1.0, "grad_norm_a": math.nan, "grad_norm_b": math.inf}
    assert course(row) == "of all 2 groups, so it came from the loss or from b"
