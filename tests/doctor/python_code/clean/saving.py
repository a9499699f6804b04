import os
import re
import shutil
from pathlib import Path

import torch


def save_checkpoint(folder, model, optimizer, scheduler, step):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "step": step,
    }
    temporary = folder / "checkpoint.pt.tmp"
    torch.save(checkpoint, temporary)
    os.replace(temporary, folder / "checkpoint.pt")


def load_checkpoint(folder, model, optimizer, scheduler, device):
    path = Path(folder) / "checkpoint.pt"
    checkpoint = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    scheduler.load_state_dict(checkpoint["scheduler"])
    return checkpoint["step"]


def prune_checkpoints(run_folder, keep):
    if keep < 1:
        raise ValueError("at least one checkpoint stays")
    found = []
    for folder in Path(run_folder).iterdir():
        if re.fullmatch(r"step_\d{8}", folder.name) and (folder / "checkpoint.pt").exists():
            found.append(folder)
    found.sort(key=lambda folder: folder.name)
    for old in found[:-keep]:
        shutil.rmtree(old)
