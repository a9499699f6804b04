import argparse
import json
import os
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import yaml
from data import make_loader
from model import Denoiser
from saving import load_checkpoint, prune_checkpoints, save_checkpoint
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--keep", type=int, default=3)
    parser.add_argument("--save-every", type=int, default=4)
    parser.add_argument("--log-every", type=int, default=2)
    parser.add_argument("--out", default="saved/run")
    parser.add_argument("--resume", default=None)
    args = parser.parse_args()
    config = yaml.safe_load((Path(__file__).parent / "config.yaml").read_text())
    accumulation = config["training"]["gradient_accumulation_steps"]

    on_gpu = torch.cuda.is_available()
    os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")
    dist.init_process_group(backend="nccl" if on_gpu else "gloo", timeout=timedelta(minutes=10))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    torch.manual_seed(0)

    raw_model = Denoiser().to(device)
    optimizer = torch.optim.AdamW(raw_model.parameters(), lr=1e-3, fused=on_gpu)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
    step = 0
    if args.resume:
        step = load_checkpoint(args.resume, raw_model, optimizer, scheduler, device)
    model = DDP(
        raw_model,
        device_ids=[local_rank] if on_gpu else None,
        find_unused_parameters=False,
        gradient_as_bucket_view=True,
    )
    train_loader, sampler = make_loader(config, rank, world_size)
    Path(args.out).mkdir(parents=True, exist_ok=True)
    log = open(Path(args.out) / f"training_log_rank{rank}.jsonl", "a")  # noqa: SIM115

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for index, (tokens, targets) in enumerate(train_loader):
            tokens = tokens.to(device, non_blocking=True)  # noqa: PLW2901
            targets = targets.to(device, non_blocking=True)  # noqa: PLW2901
            is_last = (index + 1) % accumulation == 0
            with nullcontext() if is_last else model.no_sync():
                with torch.autocast(device.type, dtype=torch.bfloat16):
                    loss = model(tokens, targets)
                (loss / accumulation).backward()
            if not is_last:
                continue
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if torch.isfinite(norm):  # the same on all ranks
                optimizer.step()
                scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if step % args.log_every == 0:
                log.write(json.dumps({"step": step, "loss": loss.item()}) + "\n")
                log.flush()
            if step % args.save_every == 0:
                if rank == 0:
                    folder = Path(args.out) / f"step_{step:08d}"
                    save_checkpoint(folder, raw_model, optimizer, scheduler, step)
                    prune_checkpoints(args.out, args.keep)
                dist.barrier()
    log.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
