"""FSDP2, or a pipeline of two stages, under the callback; processes on CPUs over gloo:

    torchrun --standalone --nproc-per-node 2 examples/parallel_on_cpu.py fsdp2
    torchrun --standalone --nproc-per-node 4 examples/parallel_on_cpu.py pipeline
    ldlm-monitor --once saved/pipeline/*.jsonl

A third word is a step at which the last rank raises: the incident then names its stage.
docs/callback.md says which rank's loss and norm is the run's. DeepSpeed's ZeRO: zero_on_cpu.py.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

from ldlm_callback import HealthCallback

kind, fails_at = sys.argv[1], int((sys.argv[2:] or ["-1"])[0])
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cpu")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 1))
schedule, is_last = None, True

if kind == "fsdp2":
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    fully_shard(model, mesh=mesh)
else:
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("pp", "dp"))
    stage = mesh.get_local_rank("pp")
    is_last = stage == 1
    model = nn.Sequential(*model[:2]) if stage == 0 else nn.Sequential(model[2])
    part = PipelineStage(model, stage, 2, device, group=mesh.get_group("pp"))
    schedule = ScheduleGPipe(part, n_microbatches=2, loss_fn=nn.functional.mse_loss)

optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
data = torch.Generator().manual_seed(mesh.get_local_rank("dp"))  # equal for all stages of a replica
with HealthCallback(run=kind, mesh=mesh) as health:
    for step in range(20):
        if rank == world - 1 and step == fails_at:
            raise RuntimeError("a failure that was asked for")
        batch = torch.randn(8, 16, generator=data)
        target = batch.sum(1, keepdim=True)
        losses: list[torch.Tensor] = []
        if schedule is None:
            losses.append(nn.functional.mse_loss(model(batch), target))
            losses[0].backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1e9).full_tensor()
        else:
            given = (batch,) if not is_last else ()
            schedule.step(*given, target=target if is_last else None, losses=losses)
            gradients = [each.grad for each in model.parameters() if each.grad is not None]
            for each in gradients:
                dist.all_reduce(each, group=mesh.get_group("dp"))
                each.div_(world // 2)
            square = nn.utils.get_total_norm(gradients).square()
            dist.all_reduce(square, group=mesh.get_group("pp"))
            norm = square.sqrt()
        optimizer.step()
        optimizer.zero_grad()
        # The loss of a pipeline is that of its last stage; the others leave it out.
        health.on_step(step, loss=torch.stack(losses).mean() if losses else None, grad_norm=norm)
dist.destroy_process_group()
