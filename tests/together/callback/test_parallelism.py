"""Ranks of real process groups (gloo): what each reports, and how the monitor names them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ldlm_monitor", reason="the monitor, which reads the files, is not installed")

from ldlm_monitor.finished.playback.log_replay import Replay
from ldlm_monitor.service.config import Settings

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

RANKS = """
import multiprocessing, socket
import torch
import torch.distributed as dist

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    os.environ |= {{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}}

def one(rank):
    os.environ |= {{"RANK": str(rank), "WORLD_SIZE": "{world}"}}
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(rank)
    dist.destroy_process_group()

{train}
fork = multiprocessing.get_context("fork")
ranks = [fork.Process(target=one, args=(rank,)) for rank in range({world})]
[each.start() for each in ranks]
[each.join() for each in ranks]
"""

PIPELINE = """
def train(rank):
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    stage, peers = mesh.get_local_rank("pp"), dist.get_process_group_ranks(mesh.get_group("pp"))
    layer = torch.nn.Linear(4, 4 if stage == 0 else 1)
    with HealthCallback(out=sys.argv[1], mesh=mesh, gpu=False) as health:
        for step in range(1, 7):
            dist.barrier()
            if rank == 3 and step == 6:
                raise ValueError("this stage fails")
            loss = None
            if stage == 0:
                hidden = layer(torch.ones(2, 4))
                dist.send(hidden.detach(), peers[1])
                gradient = torch.empty(2, 4)
                dist.recv(gradient, peers[1])
                hidden.backward(gradient)
            else:
                hidden = torch.empty(2, 4)
                dist.recv(hidden, peers[0])
                loss = layer(hidden.requires_grad_()).square().mean()
                loss.backward()
                dist.send(hidden.grad, peers[0])
            norm = torch.nn.utils.get_total_norm([each.grad for each in layer.parameters()]) ** 2
            dist.all_reduce(norm, group=mesh.get_group("pp"))
            health.on_step(step, loss=loss, grad_norm=norm.sqrt())
"""


def test_of_a_pipeline_the_last_stage_has_the_loss_and_the_failed_stage_is_named(train) -> None:
    training = train(RANKS.format(train=PIPELINE, world=4))
    training.end()
    first, last = training.rows(rank=0), training.rows(rank=3)
    assert [rows[0]["mesh"] for rows in (first, last)] == [{"pp": 0, "dp": 0}, {"pp": 1, "dp": 1}]
    assert not [row for row in first if "loss" in row]

    replay = Replay(Settings(files=(str(training.out),)))
    assert [*replay.transitions()]
    snapshot = replay.snapshot()
    (run,) = snapshot.runs
    logged = {row["loss"] for rank in (2, 3) for row in training.rows(rank) if "loss" in row}
    assert run.statistics["loss"].current in logged
    assert run.statistics["grad_norm"].current > 0
    assert [rank.mesh for rank in run.ranks][2:] == ["pp stage 1, dp 0", "pp stage 1, dp 1"]
    (incident,) = snapshot.incidents
    assert (incident.root.rank, incident.root.mesh) == (3, "pp stage 1, dp 1")
    assert "on rank 3 (pp stage 1, dp 1" in incident.title
    exported = {
        dict(point.labels)["rank"]: dict(point.labels)
        for point in snapshot.points
        if point.name == "ldlm_run_mesh_info"
    }
    assert {name: exported["3"][name] for name in ("dp", "pp")} == {"dp": "1", "pp": "1"}


SHARDED = """
from torch.distributed.fsdp import fully_shard

def train(rank):
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    model = fully_shard(torch.nn.Linear(4, 1), mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    with HealthCallback(out=sys.argv[1], mesh=mesh, gpu=False) as health:
        health.watch(model, 0, optimizer=optimizer, check_replicas_every=1)
        for step in range(1, 4):
            loss = model(torch.randn(2, 4)).square().mean()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            health.on_step(step, loss=loss, grad_norm=norm.full_tensor())
"""


@pytest.mark.long  # a pipeline has real ranks in each run
def test_of_shards_every_rank_has_the_norm_of_all_once_it_is_put_together(train) -> None:
    training = train(RANKS.format(train=SHARDED, world=2))
    code, errors = training.end()
    assert code == 0, errors
    norms = [
        [row["grad_norm"] for row in training.rows(rank) if row["type"] == "step"]
        for rank in (0, 1)
    ]
    assert norms[0] == norms[1]
    assert len(norms[0]) == 3
    checks = [row["fields"] for row in training.rows() if row.get("kind") == "replica_checksum"]
    assert [[*each["checksums"]] for each in checks] == [["optimizer state", "parameters"]] * 3
    replay = Replay(Settings(files=(str(training.out),)))
    assert {each.alert for each in replay.transitions()} == {"Watchdog"}
    assert replay.snapshot().incidents == (), "shards are no replicas"


TENSORS = """
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

def train(rank):
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    whole = [each.detach().clone().requires_grad_() for each in model.parameters()]
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = torch.Generator().manual_seed(mesh.get_local_rank("dp"))  # equal within a tp group
    with HealthCallback(out=sys.argv[1], mesh=mesh, gpu=False) as health:
        health.watch(model, 0, optimizer=optimizer, check_replicas_every=1)
        for step in range(1, 5):
            if (rank, step) == (2, 4):
                raise ValueError("this shard fails")
            batch = torch.randn(2, 4, generator=data)
            loss = model(batch).square().mean()
            loss.backward()
            for each in model.parameters():
                local = each.grad.to_local()
                dist.all_reduce(local, group=mesh.get_group("dp"))
                local /= 2
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
            hidden = torch.tanh(batch @ whole[0].T + whole[1])
            alone = (hidden @ whole[2].T + whole[3]).square().mean()
            expected = torch.autograd.grad(alone, whole) if step == 1 else None
            if expected is not None:
                for each in expected:
                    dist.all_reduce(each, group=mesh.get_group("dp"))
                total = torch.nn.utils.get_total_norm([each / 2 for each in expected])
                health.log(expected_loss=alone, expected_norm=total)
            optimizer.step()
            optimizer.zero_grad()
            health.on_step(step, loss=loss, grad_norm=norm)
"""


@pytest.mark.long  # a pipeline has real ranks in each run
def test_of_tensor_parallel_ranks_a_group_has_one_loss_and_all_have_one_norm(train) -> None:
    training = train(RANKS.format(train=TENSORS, world=4))
    training.end()
    rows = [
        [row for row in training.rows(rank) if row["type"] == "step" and "loss" in row]
        for rank in range(4)
    ]
    losses = [[row["loss"] for row in each] for each in rows]
    assert losses[0] == losses[1] != losses[2]
    norms = [[row["grad_norm"] for row in each][:3] for each in rows]
    assert norms[0] == norms[1] == norms[2] == norms[3]
    (alone,) = [row for row in training.rows(0) if "expected_loss" in row]
    assert losses[0][0] == pytest.approx(alone["expected_loss"], rel=1e-5)
    assert norms[0][0] == pytest.approx(alone["expected_norm"], rel=1e-5)
    replay = Replay(Settings(files=(str(training.out),)))
    assert [*replay.transitions()]
    snapshot = replay.snapshot()
    (run,) = snapshot.runs
    assert [rank.mesh for rank in run.ranks] == [f"dp {n // 2}, tp {n % 2}" for n in range(4)]
    (incident,) = snapshot.incidents
    assert (incident.root.rank, incident.root.mesh) == (2, "dp 1, tp 0")
    assert incident.root.kind == "python_exception", (
        "shards of tensors are no replicas of each other"
    )


@pytest.mark.long  # six ranks by torchrun
def test_the_example_has_the_same_losses_and_norms_sharded_and_as_a_pipeline(tmp_path) -> None:
    example = Path(__file__).resolve().parents[3] / "examples/parallel_on_cpu.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    found = {}
    for kind, ranks in (("fsdp2", 2), ("pipeline", 4)):
        subprocess.run(
            [*command, str(ranks), str(example), kind], cwd=tmp_path, check=True, timeout=300,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        for rank in range(ranks):
            lines = (tmp_path / f"saved/{kind}/health_rank{rank}.jsonl").read_text().splitlines()
            header, *rows = map(json.loads, lines)
            place = {"pp": 1, **header["mesh"]}  # what is no pipeline has its loss on each rank
            steps = [row for row in rows if row["type"] == "step"]
            norms, losses = ([row.get(key) for row in steps] for key in ("grad_norm", "loss"))
            found[kind, place["pp"], place["dp"]] = norms, losses
    for dp in (0, 1):
        norms, losses = found["fsdp2", 1, dp]
        assert len(norms) == len(losses) == 20
        assert found["pipeline", 0, dp][0] == pytest.approx(norms, rel=1e-3)
        assert found["pipeline", 1, dp][1] == pytest.approx(losses, rel=1e-3)
