import lightning as L
import torch
from torch.nn import functional
from torch.utils.data import DataLoader


class Classifier(L.LightningModule):
    def __init__(self, backbone, num_workers=4):
        super().__init__()
        self.backbone = backbone
        self.num_workers = num_workers

    def training_step(self, batch, batch_idx):
        loss = functional.cross_entropy(self.backbone(batch["x"]), batch["y"])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        loss = functional.cross_entropy(self.backbone(batch["x"]), batch["y"])
        self.log("val_loss", loss, sync_dist=True)

    def on_train_epoch_end(self):
        gathered = self.all_gather(self.trainer.callback_metrics["train_loss"])
        if self.trainer.is_global_zero:
            print(gathered.mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3, fused=True)


def main(backbone, train_set, val_set, args):
    model = Classifier(backbone)
    train_loader = DataLoader(
        train_set, 8, shuffle=True, num_workers=4, persistent_workers=True, prefetch_factor=4
    )
    val_loader = DataLoader(val_set, batch_size=8, num_workers=2)
    trainer = L.Trainer(max_epochs=3, devices=8, strategy="ddp", gradient_clip_val=1.0)
    trainer.fit(model, train_loader, val_loader, ckpt_path=args.resume)
    trainer.save_checkpoint("final.ckpt")
