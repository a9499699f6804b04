import contextlib
import math

import torch


def train_one_epoch(model, data_loader, optimizer, device, args):
    model.train()
    optimizer.zero_grad()
    running = torch.zeros((), device=device)
    for data_iter_step, (samples, labels) in enumerate(data_loader):
        updates = (data_iter_step + 1) % args.accum_iter == 0
        with contextlib.nullcontext() if updates else model.no_sync():
            loss = model(samples.to(device), labels.to(device))
            loss = loss / args.accum_iter
            loss.backward()
        running += loss.detach()
        if updates:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if data_iter_step % args.log_every == 0:
            value = loss.item()
            print(f"step {data_iter_step} loss {value:.4f}")
            if not math.isfinite(value):
                raise RuntimeError(f"loss is {value}, norm {norm}")
    return running / len(data_loader)


@torch.no_grad()
def evaluate(model, data_loader, device):
    model.eval()
    total = torch.zeros((), device=device)
    for samples, labels in data_loader:
        total += model(samples.to(device), labels.to(device))
    return total / len(data_loader)
