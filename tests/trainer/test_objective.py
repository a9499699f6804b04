"""The objective against its formulas, and switches that must not change the mathematics."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install '.[trainer]'")

import numpy as np
import torch
from torch.nn import functional

from ldlm_trainer.batch import Batch
from ldlm_trainer.config import Config, Objective
from ldlm_trainer.data import MicroBatches, Plan
from ldlm_trainer.diffusion import (
    L2T,
    LEAST_T,
    MODES,
    SUMS,
    T2L,
    UNCONDITIONAL,
    add_noise,
    latent_losses,
    micro_loss,
    spread,
)
from ldlm_trainer.faults import Faults
from ldlm_trainer.network import MultimodalDiT, Shape
from ldlm_trainer.rank_process import Process
from ldlm_trainer.shards import MASK, Shards
from ldlm_trainer.step import Balance, Result, Stepper, _result

Make = Callable[..., Config]
CPU = torch.device("cpu")


def batch(mode: int, size: int = 6, length: int = 10) -> Batch:
    torch.manual_seed(3)
    return Batch(
        tokens=torch.randint(4, 50, (size, length)),
        lengths=torch.randint(3, length + 1, (size,)),
        latents=torch.randn(size, 1, 8),
        modes=torch.full((size,), mode),
        tokens_asked=1.0,
        latents_asked=1.0,
    )


def noise(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_times_are_spread_evenly() -> None:
    times = spread(16, noise(), CPU).sort().values
    assert LEAST_T <= times[0] <= 1 / 16 + LEAST_T
    assert times[-1] < 1
    assert torch.allclose(times.diff(), torch.full((15,), (1 - LEAST_T) / 16), atol=1e-6)


def test_only_words_are_masked_and_their_weight_is_one_over_t() -> None:
    given = batch(L2T, size=64)
    noised = add_noise(given, MASK, Objective(mode="l2t"), noise())
    hidden = noised.tokens != given.tokens
    assert hidden.any()
    assert not (hidden & ~noised.present).any()
    assert torch.equal(hidden, noised.scored > 0)
    weights = (1 / noised.text_t)[:, None].expand_as(hidden)[hidden]
    assert torch.allclose(noised.scored[hidden], weights)


def test_the_weighted_mask_counts_every_word_once_on_average() -> None:
    """Without 1/t the bound on the likelihood would count late words for little."""
    given = batch(L2T, size=64)
    counts = [
        add_noise(given, MASK, Objective(mode="l2t"), noise(seed)).scored.sum()
        for seed in range(300)
    ]
    assert torch.stack(counts).mean() == pytest.approx(float(given.lengths.sum()), rel=0.05)


def test_what_conditions_stays_clean() -> None:
    text = add_noise(batch(T2L), MASK, Objective(mode="t2l"), noise())
    assert torch.equal(text.tokens, batch(T2L).tokens)
    assert not text.scored.any()
    assert (text.text_t == 0).all()
    latent = add_noise(batch(L2T), MASK, Objective(mode="l2t"), noise())
    assert torch.equal(latent.latents, batch(L2T).latents)
    assert not latent.asked.any()
    assert (latent.latent_t == 0).all()


def test_the_velocity_leads_back_to_the_latent() -> None:
    """x = alpha x_t - sigma v, with alpha = cos and sigma = sin of t pi/2."""
    given = batch(UNCONDITIONAL)
    noised = add_noise(given, MASK, Objective(mode="unconditional"), noise())
    angle = (noised.latent_t * torch.pi / 2)[:, None, None]
    back = angle.cos() * noised.latents - angle.sin() * noised.target
    assert torch.allclose(back, given.latents, atol=1e-5)


def test_cosine_loss_weighs_as_much_as_the_mean_square_of_unit_vectors() -> None:
    """1 - cos alone would be D/2 times as much: a hidden weight."""
    a, b = torch.randn(5, 1, 8), torch.randn(5, 1, 8)
    unit = (functional.normalize(x, dim=-1) for x in (a, b))
    assert torch.allclose(latent_losses(a, b, "cosine"), latent_losses(*unit, "mse"), atol=1e-6)
    assert torch.allclose(latent_losses(3 * a, b, "cosine"), latent_losses(a, b, "cosine"))


def test_normalized_vectors_differ_in_direction_alone() -> None:
    """At the length that the data's latents have, so that the loss is of the size of the mse."""
    a, b = torch.randn(5, 1, 8), torch.randn(5, 1, 8)
    found = latent_losses(a, b, "normalized_mse")
    assert torch.allclose(latent_losses(3 * a, b / 7, "normalized_mse"), found, atol=1e-6)
    assert torch.allclose(found, 8 * latent_losses(a, b, "cosine"), atol=1e-5)


def test_balanced_losses_count_alike_whatever_their_size() -> None:
    balance = Balance(Objective(mode="mixed", weighting="balanced", latent_weight=2.0))
    assert balance.weight == 2.0
    for _ in range(3):
        balance.observe(result(text=3.0, latent=0.5))
    assert balance.weight == pytest.approx(2.0 * 6)
    balance.observe(result(text=math.nan, latent=0.5))
    balance.observe(result(text=3.0, latent=0.0))
    assert balance.weight == pytest.approx(2.0 * 6)
    balance.means = [1.0, 1e-9]
    assert balance.weight == 200.0
    assert Balance(Objective(mode="mixed")).weight == 1.0


def result(*, text: float, latent: float) -> Result:
    sums = dict.fromkeys(SUMS, 0.0) | {"text_sum": text * 10, "latent_sum": latent * 4}
    return Result(
        step=0, own_loss=0.0, own_text=0.0, own_latent=0.0, grad_norm=1.0, stop=False, sums=sums,
        tokens_asked=10.0, latents_asked=4.0, lr=0.1, latent_weight=1.0, loss_scale=math.nan,
        seconds=1.0, own_seconds=1.0, data_seconds=0.0,
    )  # fmt: skip


def test_the_losses_of_a_step_are_means_over_what_all_ranks_asked_for() -> None:
    facts = dict.fromkeys(("own", "all", "data", "lr", "loss_scale"), 0.25)
    facts |= {"step": 7, "tokens": 6, "latents": 4, "latent_weight": 2.0}
    found = _result([12.0, 3.0, 0.5, 1.0, *map(float, range(len(SUMS)))], facts, 2)
    assert (found.own_text, found.own_latent, found.own_loss) == (2.0, 0.75, 3.5)
    assert (found.tokens_asked, found.latents_asked) == (12, 8)
    assert (found.step, found.grad_norm, found.stop) == (7, 0.5, True)
    assert found.sums == dict(zip(SUMS, range(len(SUMS)), strict=True))


def test_each_micro_batch_of_each_rank_and_step_has_noise_of_its_own(settings: Make) -> None:
    def drawn(rank: int, step: int, micro: int) -> float:
        process = Process(rank=rank, world=2, local_rank=0, device=torch.device("cpu"))
        stepper = Stepper(
            settings(),
            process,
            torch.optim.AdamW([torch.zeros(1)]),
            Faults([], rank=rank, attempt=0),
        )
        return torch.rand(1, generator=stepper._generator(step, micro)).item()

    places = [(rank, step, micro) for rank in range(2) for step in range(3) for micro in range(2)]
    assert len({drawn(*place) for place in places}) == len(places)
    assert drawn(1, 2, 1) == drawn(1, 2, 1)


def test_upstreams_objective_hides_everything() -> None:
    compat = Objective(mode="l2t", upstream_compat=True)
    text = add_noise(batch(L2T), MASK, compat, noise())
    assert (text.tokens == MASK).all()
    assert (text.scored == 1).all()
    latent = add_noise(batch(T2L), MASK, compat.model_copy(update={"mode": "t2l"}), noise())
    assert torch.allclose(latent.latents, latent.target, atol=1e-4)


@pytest.fixture
def reader(settings: Make, data: Path) -> Callable[..., MicroBatches]:
    def make(**given: object) -> MicroBatches:
        chosen = settings(**given)
        samples = Shards(data, "train")
        return MicroBatches(samples, Plan(chosen, samples.lengths, samples.shape.length, 1), 0)

    return make


def gradients(
    chosen: Config, batches: list[Batch], shape: Shape
) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
    """Loss and gradients of one step; weights are random ones, not those of a new model."""
    torch.manual_seed(0)
    model = MultimodalDiT(chosen.model, shape)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    total = torch.zeros(())
    for number, part in enumerate(batches):
        noised = add_noise(part, MASK, chosen.objective, noise(number))
        loss, _ = micro_loss(model, part, noised, chosen.objective, 1.0)
        loss.backward()
        total += loss.detach()
    return total, [p.grad for p in model.parameters()]


@pytest.mark.parametrize(
    "switch",
    [
        {"model__checkpoint_every": 1},
        {"model__checkpoint_every": 2},
        {"model__attention": "explicit"},
    ],
    ids=lambda switch: next(iter(switch)),
)
def test_a_switch_for_speed_or_memory_does_not_change_the_gradient(
    settings: Make, reader: Callable[..., MicroBatches], switch: dict[str, object]
) -> None:
    batches = [reader()[0, 0]]
    shape = reader().samples.shape
    loss, plain = gradients(settings(), batches, shape)
    other_loss, other = gradients(settings(**switch), batches, shape)
    assert other_loss == pytest.approx(float(loss), rel=1e-5)
    for one, two in zip(plain, other, strict=True):
        assert (one is None) == (two is None)
        if one is not None and two is not None:
            assert torch.allclose(one, two, rtol=1e-4, atol=1e-6)


def test_a_step_is_the_same_in_one_batch_and_in_several(
    settings: Make, reader: Callable[..., MicroBatches]
) -> None:
    """Every token counts the same: not a mean of means of micro-batches."""
    whole = reader(data__batch_size=8)[0, 0]
    halves = reader(data__batch_size=4, schedule__effective_batch=8)
    parts = [halves[0, 0], halves[0, 1]]
    assert torch.equal(torch.cat([part.tokens for part in parts]), whole.tokens)
    assert parts[0].tokens_asked == parts[1].tokens_asked == whole.tokens_asked
    torch.manual_seed(0)
    model = MultimodalDiT(settings().model, halves.samples.shape)
    noised = add_noise(whole, MASK, settings().objective, noise())
    together, _ = micro_loss(model, whole, noised, settings().objective, 1.0)
    apart = torch.zeros(())
    for start, part in zip((0, 4), parts, strict=True):
        rows = type(noised)(*(field[start : start + 4] for field in noised))
        apart += micro_loss(model, part, rows, settings().objective, 1.0)[0]
    assert float(apart.detach()) == pytest.approx(float(together.detach()), rel=1e-5)


def test_mixed_has_a_gradient_for_everything(
    settings: Make, reader: Callable[..., MicroBatches]
) -> None:
    """One graph whatever modes are drawn, so DDP needs no search for unused parameters."""
    drawn = reader(objective__mode="mixed", data__batch_size=1)
    for mode in MODES.values():
        part = drawn[0, 0]._replace(modes=torch.tensor([mode]))
        _, found = gradients(settings(objective__mode="mixed"), [part], drawn.samples.shape)
        assert all(gradient is not None for gradient in found)


def test_padding_is_not_attended_to(settings: Make) -> None:
    torch.manual_seed(0)
    model = MultimodalDiT(settings().model, Shape(10, 50, 1, 8))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    given = batch(L2T)
    present = torch.from_numpy(np.arange(10) < given.lengths[:, None].numpy())
    changed = torch.where(present, given.tokens, 7)
    times = torch.full((6,), 0.5), torch.zeros(6)
    seen, other = (
        model(tokens, given.latents, *times, present)[0] for tokens in (given.tokens, changed)
    )
    assert torch.allclose(seen[present], other[present], atol=1e-6)


def test_the_package_mmdit_can_be_the_backbone(settings: Make) -> None:
    pytest.importorskip("mmdit", reason="mmdit is not installed: pip install '.[mmdit]'")
    torch.manual_seed(0)
    chosen = settings(model__backend="mmdit").model
    model = MultimodalDiT(chosen, Shape(10, 50, 1, 8))
    given = batch(L2T)
    present = torch.arange(10) < given.lengths[:, None]
    times = torch.full((6,), 0.5), torch.zeros(6)
    logits, latents = model(given.tokens, given.latents, *times, present)
    assert (logits.shape, latents.shape) == ((6, 10, 50), (6, 1, 8))
    logits.sum().backward()
    assert model.embed.weight.grad is not None
