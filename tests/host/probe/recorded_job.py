"""A job of real ranks over gloo that does not come together; each dumps its flight recorder.

python recorded_job.py CASE RANK WORLD_SIZE PORT FOLDER

`missing`: rank 2 does not join the fourth all_reduce. `mismatch`: rank 1 calls another
operation than the others. `group`: of the group of ranks 0 and 2, rank 2 stays away.
"""

import os
import sys
import time
from pathlib import Path

case, rank, world_size, port, folder = sys.argv[1], *map(int, sys.argv[2:5]), Path(sys.argv[5])
os.environ.update(
    MASTER_ADDR="127.0.0.1",
    MASTER_PORT=str(port),
    RANK=str(rank),
    WORLD_SIZE=str(world_size),
    TORCH_FR_BUFFER_SIZE="2000",
)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json  # noqa: E402


def train_step(gradient, group=None):
    return dist.all_reduce(gradient, group=group, async_op=True)


def come_together(store):
    """Without a collective, so that all are recorded as they hang."""
    store.set(f"here{rank}", "1")
    store.wait([f"here{each}" for each in range(world_size)])
    time.sleep(0.5)


dist.init_process_group("gloo")
pair = dist.new_group([0, 2], group_desc="tensor_parallel")
gradient = torch.ones(4)
for _ in range(3):
    train_step(gradient).wait()
if case == "missing" and rank != 2:
    train_step(gradient)
elif case == "mismatch":
    if rank == 1:
        dist.broadcast(torch.ones(8), src=1, async_op=True)
    else:
        train_step(gradient)
elif case == "group" and rank == 0:
    train_step(gradient, pair)
come_together(dist.distributed_c10d._get_default_store())
(folder / f"comm_lib_trace_rank_{rank}").write_bytes(_dump_fr_trace(True, True, False))
(folder / f"status_rank_{rank}.json").write_text(
    text if isinstance(text := _dump_fr_trace_json(True, False), str) else text.decode()
)
time.sleep(0.5)
os._exit(0)
