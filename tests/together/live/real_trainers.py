"""A short training by a trainer's own loop: TRAINER WHAT.

WHAT is `end`: it trains and leaves; `stay`: its process stays when it has trained; `hang`: from
step 60 on it waits for a row that never comes, or for a rank that does not join.
"""

import os
import sys
import tempfile
import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRAINER, WHAT = sys.argv[1], sys.argv[2]
STEPS, BATCH, HANGS_AT = 100, 4, 60


class Rows(Dataset[dict[str, torch.Tensor]]):
    """Rows of noise; where it hangs, a row that its worker never gives."""

    def __len__(self) -> int:
        return STEPS * BATCH

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        if TRAINER == "loader" and at == HANGS_AT * BATCH:
            time.sleep(3600)
        time.sleep(0.02)
        return {"x": torch.randn(8), "labels": torch.randn(1)}


class Model(nn.Module):
    """A linear layer that gives its loss, as models of Hugging Face do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        out = self.layer(x)
        return {"loss": (out - labels).pow(2).mean(), "logits": out}


def hugging_face() -> None:
    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=BATCH, num_train_epochs=1, logging_steps=1,
            save_strategy="no", report_to=[], use_cpu=True, dataloader_pin_memory=False,
        )  # fmt: skip
        Trainer(Model(), arguments, train_dataset=Rows()).train()


def pl() -> None:
    import lightning
    from lightning.pytorch.callbacks import TQDMProgressBar

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
            loss = self.model(**batch)["loss"]
            self.log("loss", loss, prog_bar=True)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_model_summary=False, log_every_n_steps=1,
        callbacks=[TQDMProgressBar()],
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(Rows(), batch_size=BATCH))


def steps() -> Any:
    """A bare loop: number and loss of each step."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, batch in enumerate(DataLoader(Rows(), batch_size=BATCH, num_workers=1)):
        if TRAINER == "collective" and step == HANGS_AT and os.environ["RANK"] == "1":
            time.sleep(3600)
        optimizer.zero_grad()
        loss = model(**batch)["loss"]
        loss.backward()
        if TRAINER == "collective":
            torch.distributed.all_reduce(model.layer.weight.grad)
        optimizer.step()
        yield step, loss.item()


def nanogpt() -> None:
    """Prints what nanoGPT's train.py does: no total, and no word at its end."""
    print("tokens per iteration will be: 491,520\nnumber of parameters: 10.65M")
    for step, loss in steps():
        if step % 50 == 0:
            print(f"step {step}: train loss {loss:.4f}, val loss {loss:.4f}")
        print(f"iter {step}: loss {loss:.4f}, time {21.5:.2f}ms, mfu {-100:.2f}%", flush=True)


def mnist() -> None:
    """Prints what examples/mnist/main.py of PyTorch does."""
    for step, loss in steps():
        share = f"[{step * BATCH}/{STEPS * BATCH} ({step:.0f}%)]"
        print(f"Train Epoch: 1 {share}\tLoss: {loss:.6f}", flush=True)
    print("\nTest set: Average loss: 0.0265, Accuracy: 9913/10000 (99%)\n", flush=True)


def collective() -> None:
    torch.distributed.init_process_group("gloo")
    for step, loss in steps():
        if os.environ["RANK"] == "0":
            print(f"step {step} loss {loss:.4f}", flush=True)


LOOPS = {
    "hugging_face": hugging_face, "lightning": pl, "nanogpt": nanogpt, "mnist": mnist,
    "loader": nanogpt, "collective": collective,
}  # fmt: skip

if __name__ == "__main__":
    torch.set_num_threads(1)
    LOOPS[TRAINER]()
    if WHAT == "stay":
        sys.stdout.flush()
        time.sleep(3600)
