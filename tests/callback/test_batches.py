"""Which batch was at hand when the numbers broke, as the file names it."""

import math
from collections.abc import Callable, Iterator

import pytest

from ldlm_callback.batches import Spikes, said
from ldlm_callback.gradients import course


def noisy(steps: int) -> Iterator[tuple[int, float]]:
    return ((step, 2.0 + 0.1 * (step * 37 % 11) / 11) for step in range(1, steps + 1))


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


torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def test_the_last_broken_group_is_named_unless_it_may_be_the_loss() -> None:
    row = {"grad_norm_a": math.nan, "grad_norm_b": math.nan, "grad_norm_c": 1.0}
    assert course(row) == "first in b, of 2 of 3 groups that are not finite (a, b)"
    row = {"loss": 1.0, "grad_norm": 1.0, "grad_norm_a": math.nan, "grad_norm_b": math.inf}
    assert course(row) == "of all 2 groups, so it came from the loss or from b"


def test_a_window_has_norm_and_shares_of_zeros_and_of_what_is_not_finite_by_group(
    health: Callable, reported: Callable
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
