"""Damage that nothing reports: bits that flip on one rank, found by comparing replicas.

The replicas are real models, whose gradients are averaged here as DDP does; each takes its steps
through the callback's own parts, and what they write is parsed and judged by the monitor's.
"""

import copy
import random

import pytest

pytest.importorskip("ldlm_monitor", reason="the monitor, which reads the files, is not installed")

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from ldlm_callback.rows import Rows  # noqa: E402
from ldlm_callback.steps import Steps  # noqa: E402
from ldlm_callback.writer import encode  # noqa: E402
from ldlm_monitor.base.chunk import Chunk, Origin  # noqa: E402
from ldlm_monitor.base.records import Event  # noqa: E402
from ldlm_monitor.judge.run.replicas import Replicas  # noqa: E402
from ldlm_monitor.logs.parse.row_reader import RowReader  # noqa: E402
from ldlm_monitor.monitor import Monitor  # noqa: E402

EVERY = 3
"""Steps between two checks."""


class Ranks:
    """So many replicas of one training, and the rows that each has written."""

    def __init__(self, count: int, seed: int = 0) -> None:
        self.data = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        first = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        self.models = [copy.deepcopy(first) for _ in range(count)]
        self.optimizers = [torch.optim.AdamW(each.parameters(), 1e-2) for each in self.models]
        self.rows = [[] for _ in range(count)]
        self.step = 0

    def train(self, steps: int) -> None:
        watched = [self._watch(rank) for rank in range(len(self.models))]
        for _ in range(steps):
            self.step += 1
            losses = [self._loss(model) for model in self.models]
            for loss in losses:
                loss.backward()
            for shared in zip(*(model.parameters() for model in self.models), strict=True):
                mean = torch.stack([each.grad for each in shared]).mean(0)
                for each in shared:
                    each.grad = mean.clone()
            for optimizer in self.optimizers:
                optimizer.step()
                optimizer.zero_grad()
            for steps_of_rank, loss in zip(watched, losses, strict=True):
                steps_of_rank.step(self.step, {"loss": loss}, None, None, None)

    def _loss(self, model):
        batch = torch.randn(8, 4, generator=self.data)  # another on each rank
        return (model(batch) - batch.sum(1, keepdim=True)).square().mean()

    def _watch(self, rank: int) -> Steps:
        maker = Rows(rank, 1, lambda: None)
        steps = Steps(lambda entry: self.rows[rank].extend(maker.make(entry)), {})
        steps.watch(self.models[rank], 0, self.optimizers[rank], EVERY)
        return steps

    def flip(self, rank: int, tensor, chance: random.Random) -> None:
        words = tensor.detach().view(torch.int32).view(-1)
        bit = chance.randrange(32)
        words[chance.randrange(len(words))] ^= -(2**31) if bit == 31 else 1 << bit

    def lines(self, rank: int, world: int) -> bytes:
        header = {"schema": "ldlm.health/1", "type": "run", "run": "r", "rank": rank}
        began = {"world_size": world, "time": self.rows[rank][0]["time"]}
        rows = [{**header, **began}, *self.rows[rank]]
        return b"".join(map(encode, rows))


def found_in(ranks: Ranks, replicas: Replicas | None = None) -> list[Event]:
    """What the comparison finds in the checks of all ranks, in the order of steps."""
    replicas = replicas or Replicas()
    world = len(ranks.models)
    checks = []
    for rank in range(world):
        path, data = f"health_rank{rank}.jsonl", ranks.lines(rank, world)
        chunk = Chunk(path=path, file=(0, 0, rank), offset=0, line=1, data=data)
        records = RowReader().feed(chunk, Origin(run="r"))
        checks += [each for each in records if getattr(each, "kind", "") == "replica_checksum"]
    checks.sort(key=lambda each: each.fields["step"])
    found = (replicas.observe(each, world) for each in checks)
    return [each for each in found if each is not None]


def first_nonfinite(ranks: Ranks) -> set[int]:
    """The ranks whose loss is not finite at the first step at which any is."""
    steps = {
        rank: row["step"]
        for rank, rows in enumerate(ranks.rows)
        for row in reversed(rows)
        if row.get("kind") == "nonfinite_metric"
    }
    return {rank for rank, step in steps.items() if step == min(steps.values())}


def test_every_one_of_100_flips_is_found_at_the_next_check_on_its_rank() -> None:
    """Unless it is found before that: a huge weight makes the loss of its rank infinite or NaN."""
    chance = random.Random(24)
    trained = Ranks(3)
    trained.train(2 * EVERY)
    compared = 0
    for _ in range(100):
        ranks = copy.deepcopy(trained)
        rank, before = chance.randrange(3), chance.randrange(1, EVERY)
        ranks.train(EVERY - before)
        ranks.flip(rank, chance.choice([*ranks.models[rank].parameters()]), chance)
        ranks.train(before + EVERY)
        found = [(each.rank, each.fields["step"]) for each in found_in(ranks)]
        compared += bool(found)
        assert found == [(rank, 3 * EVERY)] or (not found and first_nonfinite(ranks) == {rank})
    assert compared >= 95


def test_in_30_clean_runs_nothing_is_found() -> None:
    for seed in range(30):
        ranks = Ranks(3, seed)
        ranks.train(5 * EVERY)
        assert sum(row["type"] == "event" for rows in ranks.rows for row in rows) == 15
        assert found_in(ranks) == []


def test_damage_of_the_optimizers_state_is_found_too() -> None:
    ranks = Ranks(4)
    ranks.train(3 * EVERY - 1)
    moments = ranks.optimizers[2].state[ranks.models[2][0].weight]["exp_avg_sq"]
    ranks.step, moments[0, 0] = ranks.step + 1, 1.0
    for rank in range(4):
        ranks._watch(rank).step(ranks.step, {}, None, None, None)
    (found,) = found_in(ranks)
    assert (found.rank, found.fields["quantity"]) == (2, "optimizer state")


def test_of_two_replicas_which_is_right_is_unknown() -> None:
    ranks = Ranks(2)
    ranks.train(2 * EVERY)
    ranks.flip(1, ranks.models[1][0].bias, random.Random(1))
    ranks.train(2 * EVERY)
    (found,) = found_in(ranks)
    assert found.rank is None
    assert (
        "of ranks 0-1 differ at step 9, but not at step 6: which is right is unknown"
        in found.message
    )


def test_ranks_that_begin_equal_and_train_their_own_parameters_are_no_replicas() -> None:
    """Experts copied from one model, while a warm-up of the learning rate moves none of them."""
    ranks, others = Ranks(3, seed=1), Ranks(3, seed=1)
    others.data.manual_seed(99)
    for each in (ranks, others):
        for optimizer in each.optimizers:
            optimizer.param_groups[0]["lr"] = 0.0
        each.train(2 * EVERY)
        for optimizer in each.optimizers:
            optimizer.param_groups[0]["lr"] = 0.01
        each.train(2 * EVERY)
    ranks.rows += others.rows
    ranks.models += others.models
    assert found_in(ranks) == []


def test_a_mismatch_is_an_alert_and_an_incident_that_names_the_rank() -> None:
    ranks = Ranks(3)
    ranks.train(2 * EVERY)
    ranks.flip(1, ranks.models[1][2].weight, random.Random(3))
    ranks.train(EVERY)
    monitor, now = Monitor(), 0.0
    for rank in range(3):
        data = ranks.lines(rank, 3)
        path = f"saved/r/health_rank{rank}.jsonl"
        now = max(row["time"] for row in ranks.rows[rank]) + 1.0
        monitor.feed(Chunk(path=path, file=(0, 0, rank), offset=0, line=1, data=data), now)
    monitor.tick(now + 20.0)
    snapshot = monitor.snapshot()
    assert "GpuError" in [alert.name for alert in snapshot.alerts]
    (incident,) = snapshot.incidents
    assert (incident.root.kind, incident.root.rank) == ("replica_mismatch", 1)
    assert "differ from those of 2 replicas (ranks 0,2) at step 9" in incident.title
    assert incident.title.count("rank 1") == 1
    assert not [event for event in snapshot.events if event.kind == "replica_checksum"]
