import os
import time
from contextlib import nullcontext
from datetime import timedelta

import torch
from batches import get_batch
from model import GPT
from torch.distributed import barrier, destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP

out_dir = "out"
eval_interval = 2000
log_interval = 10
init_from = "scratch"  # or resume
gradient_accumulation_steps = 5
max_iters = 600000
grad_clip = 1.0

ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend="nccl", timeout=timedelta(minutes=10))
    device = f"cuda:{os.environ['LOCAL_RANK']}"
    master_process = int(os.environ["RANK"]) == 0
else:
    device, master_process = "cuda", True

iter_num = 0
model = GPT().to(device)
scaler = torch.amp.GradScaler("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)
if init_from == "resume":
    checkpoint = torch.load(f"{out_dir}/ckpt.pt", map_location=device, weights_only=True)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    scaler.load_state_dict(checkpoint["scaler"])
    iter_num = checkpoint["iter_num"]
if ddp:
    model = DDP(model, device_ids=[int(os.environ["LOCAL_RANK"])], gradient_as_bucket_view=True)
raw_model = model.module if ddp else model
t0 = time.time()
while True:
    if iter_num % eval_interval == 0 and master_process:
        checkpoint = {
            "model": raw_model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scaler": scaler.state_dict(),
            "iter_num": iter_num,
        }
        torch.save(checkpoint, os.path.join(out_dir, "ckpt.pt.tmp"))
        os.replace(os.path.join(out_dir, "ckpt.pt.tmp"), os.path.join(out_dir, "ckpt.pt"))
    for micro_step in range(gradient_accumulation_steps):
        if ddp:
            model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        with torch.autocast("cuda", dtype=torch.float16) if device else nullcontext():
            logits, loss = model(*get_batch("train"))
            loss = loss / gradient_accumulation_steps
        scaler.scale(loss).backward()
    if grad_clip != 0.0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if iter_num % log_interval == 0 and master_process:
        print(f"iter {iter_num}: loss {loss.item():.4f}, time {time.time() - t0:.2f}s")
    iter_num += 1
    if iter_num > max_iters:
        break
barrier()
if ddp:
    destroy_process_group()
