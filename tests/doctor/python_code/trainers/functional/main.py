import argparse
import datetime

import torch
import torch.distributed as dist
from engine import evaluate, train_one_epoch
from misc import is_main_process, load_checkpoint, save_checkpoint
from torch import nn, optim
from torch.utils import data

LOADER = {"batch_size": 8, "num_workers": 2, "pin_memory": True, "persistent_workers": True}


def main(args, model, train_set, val_set):
    dist.init_process_group("nccl", timeout=datetime.timedelta(minutes=15))
    device = torch.device("cuda", args.local_rank)
    model.to(device)
    optimizer = optim.Adam(model.parameters(), lr=args.lr, fused=True)
    lr_scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=args.patience)
    start_epoch = 0
    if args.resume:
        start_epoch = load_checkpoint(args.resume, model, optimizer, lr_scheduler)
    ddp = nn.parallel.DistributedDataParallel(
        model, [args.local_rank], gradient_as_bucket_view=True
    )
    sampler = data.DistributedSampler(train_set)
    train_loader = data.DataLoader(train_set, sampler=sampler, prefetch_factor=4, **LOADER)
    val_loader = data.DataLoader(val_set, sampler=data.DistributedSampler(val_set, shuffle=False))
    stopped = torch.zeros(1, device=device)
    for epoch in range(start_epoch, args.epochs):
        sampler.set_epoch(epoch)
        train_loss = train_one_epoch(ddp, train_loader, optimizer, device, args)
        val_loss = evaluate(ddp, val_loader, device)
        dist.all_reduce(val_loss, op=dist.ReduceOp.AVG)
        dist.all_reduce(train_loss, op=dist.ReduceOp.AVG)
        lr_scheduler.step(val_loss)
        if is_main_process():
            save_checkpoint(args.output, model, optimizer, lr_scheduler, epoch)
        if optimizer.param_groups[0]["lr"] < args.min_lr:
            stopped.fill_(1)
        dist.broadcast(stopped, src=0)
        if stopped.item():
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    parser.add_argument("--accum_iter", type=int, default=4)
    parser.add_argument("--log-every", type=int, default=50)
    main(parser.parse_args(), nn.Linear(4, 4), [], [])
