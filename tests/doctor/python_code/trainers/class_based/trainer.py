import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader as DL
from torch.utils.data import DistributedSampler


class Trainer:
    def __init__(self, model, dataset, args):
        self.gpu_id = int(os.environ["LOCAL_RANK"])
        self.args = args
        self.loader = DL(
            dataset,
            batch_size=args.batch_size,
            sampler=DistributedSampler(dataset),
            num_workers=2,
            pin_memory=True,
            persistent_workers=True,
            prefetch_factor=4,
        )
        self.model = model.to(self.gpu_id)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr, fused=True)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, args.lr, 1000)
        self.scaler = torch.amp.GradScaler("cuda")
        self.epochs_run = 0
        if args.resume:
            self._load_snapshot(args.resume)
        self.model = DistributedDataParallel(
            self.model, device_ids=[self.gpu_id], gradient_as_bucket_view=True
        )

    def _load_snapshot(self, path):
        snapshot = torch.load(path, map_location=f"cuda:{self.gpu_id}", weights_only=True)
        self.model.load_state_dict(snapshot["model"])
        self.optimizer.load_state_dict(snapshot["optimizer"])
        self.scheduler.load_state_dict(snapshot["scheduler"])
        self.scaler.load_state_dict(snapshot["scaler"])
        self.epochs_run = snapshot["epochs_run"]

    def _save_snapshot(self, epoch):
        snapshot = {
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict(),
            "epochs_run": epoch + 1,
        }
        torch.save(snapshot, self.args.snapshot + ".new")
        os.replace(self.args.snapshot + ".new", self.args.snapshot)

    def _run_batch(self, source, targets):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(self.model(source), targets)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def _run_epoch(self, epoch):
        self.loader.sampler.set_epoch(epoch)
        for step, (source, targets) in enumerate(self.loader):
            loss = self._run_batch(source.to(self.gpu_id), targets.to(self.gpu_id))
            if step % self.args.log_every == 0 and self.gpu_id == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")

    def train(self):
        for epoch in range(self.epochs_run, self.args.epochs):
            self._run_epoch(epoch)
            if self.gpu_id == 0:
                self._save_snapshot(epoch)
            dist.barrier()
