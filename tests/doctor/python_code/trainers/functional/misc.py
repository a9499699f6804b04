import os

import torch
import torch.distributed as dist


def is_main_process():
    return not dist.is_initialized() or dist.get_rank() == 0


def save_checkpoint(output, model, optimizer, lr_scheduler, epoch):
    path = os.path.join(output, "checkpoint.pth")
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "lr_scheduler": lr_scheduler.state_dict(),
        "epoch": epoch,
    }
    torch.save(state, path + ".part")
    os.replace(path + ".part", path)


def load_checkpoint(resume, model, optimizer, lr_scheduler):
    checkpoint = torch.load(resume, map_location="cpu", weights_only=True)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    lr_scheduler.load_state_dict(checkpoint["lr_scheduler"])
    return checkpoint["epoch"] + 1
