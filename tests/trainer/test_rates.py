"""The learning rate over the steps, the plateau that lowers it, and the optimizer."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is not installed: pip install '.[trainer]'")

import torch
from torch import nn

from ldlm_trainer import optim
from ldlm_trainer.config import Model, Optim, Schedule
from ldlm_trainer.network import MultimodalDiT, Shape


@given(st.integers(2, 300), st.data())
def test_the_rate_rises_falls_and_stays_at_its_floor(steps: int, data: st.DataObject) -> None:
    warmup = data.draw(st.integers(0, steps - 1))
    schedule = Schedule(steps=steps, warmup=warmup, floor=0.1)
    rates = [optim.learning_rate(step, 2.0, schedule) for step in range(2 * steps)]
    assert 0 < rates[0] <= max(rates) <= 2.0
    assert rates[:warmup] == sorted(rates[:warmup])
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)
    assert all(rate == pytest.approx(0.2) for rate in rates[steps:])


def test_a_restart_warms_up_again_to_a_lower_peak() -> None:
    """The seeds' restart jumps tenfold in one step."""
    schedule = Schedule(steps=300, warmup=10, restart_every=100, restart_decay=0.5, floor=0.1)
    rates = [optim.learning_rate(step, 1.0, schedule) for step in range(300)]
    assert rates[100] == pytest.approx(0.05)
    assert max(rates[:100]) == 1.0
    assert max(rates[100:200]) == 0.5
    ups = [after / before for before, after in itertools.pairwise(rates[100:111])]
    assert max(ups) <= 2.0
    assert [step for step in range(300) if optim.is_restart(step, schedule)] == [100, 200]


def test_a_plateau_lowers_the_factor_after_so_many_steps_without_a_better_loss() -> None:
    plateau = optim.Plateau(Schedule(plateau_patience=20, plateau_factor=0.5))
    losses = (5.0, 4.0, 3.99, 4.2, 4.3, math.nan)
    lowered = [plateau.observe(loss, 10 * step) for step, loss in enumerate(losses)]
    assert lowered == [False, False, False, True, False, True]
    assert plateau.factor == 0.25


def test_a_plateau_goes_on_from_its_state() -> None:
    settings = Schedule(plateau_patience=2)
    first, second = optim.Plateau(settings), optim.Plateau(settings)
    second.restore(first.state())
    assert second.best == math.inf
    first.observe(3.0, 1)
    first.observe(3.5, 2)
    second.restore(first.state())
    assert second.observe(3.5, 3)


def test_negative_losses_improve_too() -> None:
    """A threshold that multiplies would call every step of a falling negative loss none."""
    plateau = optim.Plateau(Schedule(plateau_patience=1, plateau_threshold=0.01))
    assert not any(plateau.observe(loss, step) for step, loss in enumerate((-1.0, -1.5, -2.0)))


def test_a_reduction_ends_at_the_least_rate_and_raises_none() -> None:
    plateau = optim.Plateau(Schedule(plateau_min_lr=1e-4))
    plateau.factor = 0.01
    assert plateau.applied(1e-1) == pytest.approx(1e-3)
    assert plateau.applied(1e-3) == 1e-4
    assert plateau.applied(1e-5) == 1e-5


def model() -> MultimodalDiT:
    torch.manual_seed(0)
    return MultimodalDiT(Model(width=16, heads=2), Shape(8, 20, 1, 4))


def test_norms_biases_embeddings_and_positions_do_not_decay() -> None:
    net = model()
    decaying, free = optim.parameter_groups(net, 0.1)
    assert (decaying["weight_decay"], free["weight_decay"]) == (0.1, 0.0)
    names = {id(p): name for name, p in net.named_parameters()}
    free_names = {names[id(p)] for p in free["params"]}  # type: ignore[attr-defined]
    assert {"embed.weight", "text_positions", "text_norm.weight", "text_head.bias"} <= free_names
    assert "text_head.weight" not in free_names


def test_the_fused_optimizer_takes_the_same_steps() -> None:
    nets = [model(), model()]
    for net, fused in zip(nets, (True, False), strict=True):
        optimizer, why = optim.adamw(net, Optim(fused=fused))
        assert why == ""
        assert bool(optimizer.defaults["fused"]) is fused
        for _ in range(3):
            for number, parameter in enumerate(net.parameters()):
                parameter.grad = torch.full_like(parameter, 0.01 * (number % 7 - 3))
            optimizer.step()
    for one, two in zip(*(net.parameters() for net in nets), strict=True):
        assert torch.allclose(one, two, atol=1e-7)


def test_without_a_fused_kernel_the_plain_one_is_taken_and_it_is_said() -> None:
    """The meta device stands for one that has none."""
    net = nn.Linear(2, 2).to("meta")
    why = optim._fused_fails(net.weight)
    assert why
    optimizer, said = optim.adamw(net, Optim())
    assert said == why
    assert not optimizer.defaults["fused"]


def test_a_fused_step_is_skipped_where_the_gradient_is_marked_as_bad() -> None:
    """What a GPU does without waiting for the verdict: weights, moments and count stay."""
    net = model()
    optimizer, _ = optim.adamw(net, Optim())
    skipper = optim.Skipper(torch.device("cpu"))
    for grad, norm in ((0.1, 1.0), (math.nan, math.nan), (0.0, math.inf)):
        bad = not math.isfinite(norm)
        for parameter in net.parameters():
            parameter.grad = torch.full_like(parameter, grad)
        before = [p.detach().clone() for p in net.parameters()]
        skipper.step(optimizer, torch.tensor(norm))
        same = [torch.equal(p, kept) for p, kept in zip(net.parameters(), before, strict=True)]
        assert all(same) is bad
    states = optimizer.state.values()
    assert all(state["step"] == 1 and state["exp_avg"].isfinite().all() for state in states)
