"""DeepSpeed's ZeRO under the callback, two processes on CPUs:

    pip install deepspeed
    DS_ACCELERATOR=cpu torchrun --standalone --nproc-per-node 2 examples/zero_on_cpu.py 2

The argument is the stage of ZeRO (tried: 1, 2 and 3). The first start compiles an extension of
DeepSpeed, which takes minutes. A start that was killed while it compiled leaves an empty file
`lock` in ~/.cache/torch_extensions/*/deepspeed_shm_comm, for which every later one waits in
silence: remove it.
"""

import sys

import deepspeed
import torch

from ldlm_callback import HealthCallback

config = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": int(sys.argv[1])},
    "zero_force_ds_cpu_optimizer": False,  # its own is compiled, too
    "zero_allow_untested_optimizer": True,
}
deepspeed.init_distributed(dist_backend="gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
data = torch.Generator().manual_seed(torch.distributed.get_rank())
with HealthCallback(run="zero") as health:
    for step in range(20):
        batch = torch.randn(4, 16, generator=data).bfloat16()
        loss = engine(batch).float().square().mean()
        engine.backward(loss)
        engine.step()
        health.on_step(step, loss=loss, grad_norm=engine.get_global_grad_norm())
torch.distributed.destroy_process_group()
