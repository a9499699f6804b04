"""A joint text-latent diffusion training that is small enough for a laptop's CPU.

It has the parts of MM-LDLM's trainer that a monitor sees: a masked-diffusion loss on text, a
continuous-diffusion loss on latents, one transformer over both, data parallelism, and the same
messages, progress bars and `training_log.jsonl`. Data are synthetic: a sentence takes its words,
frequent and rare ones, from one of eight topics, and its latent lies near that topic's centre.

    torchrun --standalone --nproc_per_node=2 small_training.py --name healthy

`--corrupt` damages some samples of the training set, as a bad preprocessing job would. What the
log then says follows from the arithmetic; no message depends on the flag.
"""

import argparse
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from tqdm import tqdm

# data
TOPICS, WORDS = 8, 12  # words of a topic
VOCAB = TOPICS * WORDS + 1
MASK = VOCAB - 1  # id of [MASK]
LENGTH = 64
LATENT_DIM = 16
TRAIN_SAMPLES = 4800
VAL_SAMPLES = 320
CORRUPT_LATENTS = (1033, 2718, 4099)
CORRUPT_TOKENS = (3141,)
# model
WIDTH = 128
DEPTH = 4
HEADS = 4
# training
BATCH = 8  # per process
PEAK_LR = 1e-3
WARMUP = 50
GRAD_CLIP = 0.5
LATENT_WEIGHT = 0.1
EVAL_EVERY = 250
SAVE_EVERY = 500
SEED = 20
RULER = "=" * 60


class PairedSamples(Dataset[tuple[Tensor, Tensor]]):
    """Pairs of tokens (LENGTH,) int64 and latent (LATENT_DIM,) float32, equal on every rank."""

    def __init__(self, size: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        topic = rng.integers(0, TOPICS, size)
        odds = 1 / np.arange(1, WORDS + 1) ** 1.5
        words = rng.choice(WORDS, (size, LENGTH), p=odds / odds.sum())
        centres = np.random.default_rng(SEED).normal(size=(TOPICS, LATENT_DIM))
        latents = centres[topic] + rng.normal(scale=0.3, size=(size, LATENT_DIM))
        self.tokens = torch.from_numpy(topic[:, None] * WORDS + words)
        self.latents = torch.from_numpy(latents.astype(np.float32))

    def corrupt(self, kind: str) -> None:
        """Damage a few samples as happens in practice; "nothing" leaves all as they are."""
        if kind == "latents":  # stored as float16 with a wrong scale: |x| > 65504 becomes inf
            rows = list(CORRUPT_LATENTS)
            self.latents[rows] = (self.latents[rows] * 1e6).half().float()
        elif kind == "tokens":  # written by a tokenizer with a larger vocabulary
            self.tokens[list(CORRUPT_TOKENS), LENGTH // 2] = 30521

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.tokens[i], self.latents[i]


def time_features(t: Tensor) -> Tensor:
    """Sinusoids of diffusion times in [0, 1]: (B,) -> (B, WIDTH)."""
    angles = t[:, None] * torch.logspace(0, 3, WIDTH // 2)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class JointDiffusion(nn.Module):
    """Denoises text and latent together; forward gives the training loss and its metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(LENGTH + 1, WIDTH))
        self.latent_in = nn.Linear(LATENT_DIM, WIDTH)
        self.times = nn.Linear(2 * WIDTH, WIDTH)
        block = nn.TransformerEncoderLayer(
            WIDTH,
            HEADS,
            4 * WIDTH,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.blocks = nn.TransformerEncoder(
            block, DEPTH, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False
        )
        self.text_head = nn.Linear(WIDTH, VOCAB)
        self.latent_head = nn.Linear(WIDTH, LATENT_DIM)

    def denoise(
        self, tokens: Tensor, latents: Tensor, text_t: Tensor, latent_t: Tensor
    ) -> tuple[Tensor, Tensor]:
        times = self.times(torch.cat([time_features(text_t), time_features(latent_t)], dim=1))
        x = torch.cat([self.embed(tokens), self.latent_in(latents)[:, None]], dim=1)
        x = self.blocks(x + self.positions + times[:, None])
        return self.text_head(x[:, :-1]), self.latent_head(x[:, -1])

    def forward(self, tokens: Tensor, latents: Tensor) -> tuple[Tensor, dict[str, float]]:
        text_t, latent_t = torch.rand(2, len(tokens))
        # Text: each token is masked with probability t, and at least one of a sample is.
        hidden = torch.rand(tokens.shape) < text_t[:, None]
        hidden[torch.arange(len(tokens)), torch.randint(LENGTH, (len(tokens),))] = True
        # Latent: a cosine schedule; the network predicts v = alpha * noise - sigma * latent.
        angle = latent_t[:, None] * math.pi / 2
        alpha, sigma = angle.cos(), angle.sin()
        noise = torch.randn_like(latents)
        noisy = alpha * latents + sigma * noise

        logits, velocity = self.denoise(tokens.masked_fill(hidden, MASK), noisy, text_t, latent_t)
        text_loss = functional.cross_entropy(logits[hidden], tokens[hidden])
        latent_loss = functional.mse_loss(velocity, alpha * noise - sigma * latents)
        loss = text_loss + LATENT_WEIGHT * latent_loss
        accuracy = (logits[hidden].argmax(-1) == tokens[hidden]).float().mean()
        return loss, {
            "text_loss": text_loss.item(),
            "latent_loss": latent_loss.item(),
            "text_accuracy": accuracy.item(),
            "latent_norm": latents.norm(dim=1).mean().item(),
            "latent_pred_norm": velocity.detach().norm(dim=1).mean().item(),
        }


def batches(
    loader: DataLoader[tuple[Tensor, Tensor]], sampler: DistributedSampler[int], epochs: int
) -> Iterator[tuple[int, int, list[Tensor]]]:
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for i, batch in enumerate(loader):
            yield epoch, i, batch


def learning_rate(step: int, total: int) -> float:
    """Linear warm-up to PEAK_LR, then a cosine down to a tenth of it."""
    if step < WARMUP:
        return PEAK_LR * step / WARMUP
    progress = (step - WARMUP) / max(1, total - WARMUP)
    return PEAK_LR * (0.55 + 0.45 * math.cos(math.pi * progress))


def report_problem(title: str, facts: dict[str, str], remedy: str) -> None:
    lines = [f"  {name}: {value}" for name, value in facts.items()]
    print("\n".join(["", RULER, f"ERROR: {title}", RULER, *lines, f"  {remedy}...", RULER, ""]))


def print_banner(model: nn.Module, run_dir: Path, world_size: int) -> None:
    trainable = sum(p.numel() for p in model.parameters())
    weights = trainable - VOCAB * WIDTH
    flops = 6 * weights * BATCH * world_size * (LENGTH + 1)
    print(f"Working directory: {run_dir}")
    print("*** Starting MMDiT with Joint Text-Latent Diffusion ***")
    print(f"* World size: {world_size}\n* FLOPs per batch: {flops:.3g}")
    print(f"* Per-device batch size: {BATCH}\n* Total batch size: {BATCH * world_size}")
    print(f"* Non-embedding parameters: {weights / 1e6:.1f}M")
    print(f"* Trainable parameters: {trainable / 1e6:.1f}M\n* Model dtype: torch.float32")
    print(f"* Latent dimension: {LATENT_DIM}\n* Text diffusion: Masked Diffusion")
    print("* Latent diffusion: Continuous Diffusion (cosine)\n*************************")


def write_row(log: Path, row: dict[str, float]) -> None:
    """Append one step; NaN and Infinity stay bare, as json.dumps writes them."""
    with log.open("a") as lines:
        lines.write(json.dumps(row) + "\n")


def all_ranks_agree(good: bool) -> bool:
    """True if it is good on every rank. Ranks that skip alone leave the others waiting for ever."""
    verdict = torch.tensor(float(good))
    dist.all_reduce(verdict, op=dist.ReduceOp.MIN)
    return bool(verdict)


def update(
    model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor, step: int, losses: list[float]
) -> None:
    """One optimizer step on all ranks, or none on any if a loss or the gradient is not finite."""
    parts = {"Text loss": f"{losses[0]:.6f}", "Latent loss": f"{losses[1]:.6f}"}
    lr = {"Learning rate": f"{optimizer.param_groups[0]['lr']:.2e}"}
    finite = bool(loss.isfinite())
    if not finite:
        facts = {"Total loss": str(loss.item()), **parts, "Mode": "unconditional", **lr}
        report_problem(f"Invalid loss detected at step {step}", facts, "Skipping this batch")
    if not all_ranks_agree(finite):
        return
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), GRAD_CLIP)
    if not norm.isfinite():
        facts = {"Gradient norm": str(norm.item()), "Loss": f"{loss.item():.6f}", **parts, **lr}
        remedy = "Skipping optimizer step and resetting gradients"
        report_problem(f"Invalid gradient norm at step {step}", facts, remedy)
        return
    optimizer.step()


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader[tuple[Tensor, Tensor]], rank: int) -> float:
    model.eval()
    bar = tqdm(loader, desc="Eval", disable=rank != 0)
    mean = torch.stack([model(tokens, latents)[0] for tokens, latents in bar]).mean()
    dist.all_reduce(mean)
    model.train()
    return mean.item() / dist.get_world_size()


def train(args: argparse.Namespace, rank: int, world_size: int) -> None:
    data = PairedSamples(TRAIN_SAMPLES, seed=1)
    data.corrupt(args.corrupt)
    sampler = DistributedSampler(data, shuffle=True, seed=SEED)
    loader = DataLoader(data, BATCH, sampler=sampler)
    held_out = PairedSamples(VAL_SAMPLES, seed=2)
    val_loader = DataLoader(held_out, BATCH, sampler=DistributedSampler(held_out, shuffle=False))
    total = len(loader) * args.epochs

    torch.manual_seed(SEED)
    model = JointDiffusion()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99), weight_decay=0.01)
    torch.manual_seed(SEED + 1 + rank)  # the same weights, but other noise on each rank

    run_dir = Path("saved").resolve() / args.name
    log, checkpoint = run_dir / "training_log.jsonl", run_dir / "latest" / "checkpoint.pt"
    if rank == 0:
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")
        print_banner(model, run_dir, world_size)

    eval_loss = math.nan
    bar = tqdm(total=total, desc="Training", ncols=100, disable=rank != 0)
    for step, (epoch, batch_in_epoch, batch) in enumerate(batches(loader, sampler, args.epochs)):
        lr = optimizer.param_groups[0]["lr"] = learning_rate(step, total)
        loss, metrics = ddp(*batch)
        place = {"epoch": epoch, "step": step, "batch_in_epoch": batch_in_epoch}
        if rank == 0:
            write_row(log, {**place, "loss": loss.item(), "lr": lr, **metrics})
        update(ddp, optimizer, loss, step, [metrics["text_loss"], metrics["latent_loss"]])
        if step % 10 == 0:
            shown = {
                "Epoch": f"{epoch}/{args.epochs}",
                "Progress": f"{100 * batch_in_epoch / len(loader):.1f}%",
                "Loss": f"{loss.item():.4f}",
                "Text": f"{metrics['text_loss']:.4f}",
                "Latent": f"{metrics['latent_loss']:.4f}",
                "Acc": f"{metrics['text_accuracy']:.4f}",
            }
            bar.set_postfix(shown)  # a dict keeps the order, keywords would be sorted
        bar.update()
        if (step + 1) % EVAL_EVERY == 0:
            eval_loss = evaluate(model, val_loader, rank)
        if (step + 1) % SAVE_EVERY == 0 and rank == 0:
            state = {"model": model.state_dict(), "step": step + 1, "eval_loss": eval_loss}
            torch.save(state, checkpoint)
            print(f"Saved checkpoint to {checkpoint}")
    bar.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="A small joint text-latent diffusion training.")
    parser.add_argument("--name", required=True, help="name of the folder under saved/")
    parser.add_argument("--epochs", type=int, default=2, help="300 steps each on two processes")
    parser.add_argument("--corrupt", choices=["nothing", "latents", "tokens"], default="nothing")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    train(args, int(os.environ["RANK"]), dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
