"""What a run writes: lines on standard output, and `training_log.jsonl`.

Standard output goes through the launch script into `train_logs/`. A line about one rank
names it; what is true of all of them is said once, by rank 0, and names none. Lines are
written whole, so that ranks do not tear each other's.
`training_log.jsonl` has upstream's keys and more, a row for each step.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from ldlm_trainer.config import Config

RULER = "=" * 60
BAR_COLUMNS = 100
UPSTREAM_KEYS = (
    "epoch", "step", "batch_in_epoch", "loss", "lr", "text_loss", "latent_loss",
    "text_accuracy", "latent_norm",
)  # fmt: skip
LINE_KEYS = (
    "loss", "text_loss", "latent_loss", "text_accuracy", "lr", "grad_norm",
    "samples_per_sec",
)  # fmt: skip
Row = Mapping[str, float | int | str]


class Log:
    """The log of one rank. `training_log.jsonl` is rank 0's, and never shortened.

    Non-finite numbers are the strings "NaN", "Infinity" and "-Infinity" there. The
    dialect `upstream` writes what MM-LDLM does: progress bars, fewer keys, bare NaN, and
    a file that starts anew.
    """

    def __init__(
        self, settings: Config, rank: int, *, resumed: bool, stream: TextIO | None = None
    ) -> None:
        self.rank, self.settings, self._stream = rank, settings, stream or sys.stdout
        self.is_upstream = settings.run.dialect == "upstream"
        self._rows: IO[str] | None = None
        self._bar_began = time.monotonic()
        if rank == 0:
            settings.folder.mkdir(parents=True, exist_ok=True)
            path = settings.folder / "training_log.jsonl"
            _close_last_line(path)
            mode = "w" if self.is_upstream else "a"
            self._rows = path.open(mode, encoding="utf-8", buffering=1)
            self.lines(self._banner(resumed=resumed))

    def lines(self, *texts: str, own: bool = False) -> None:
        """Say something of the run, which rank 0 does, or of this rank (`own`)."""
        if self.rank != 0 and not own:
            return
        begin = ""
        if not self.is_upstream:
            rank = f" [rank{self.rank}]:" if own else ""
            begin = f"{time.strftime('%Y-%m-%d %H:%M:%S')}{rank} "
        every = [line for text in texts for line in text.split("\n")]
        self._write("".join(f"{begin}{line}\n" for line in every))

    def problem(self, title: str, facts: Mapping[str, str], remedy: str, *, own: bool) -> None:
        """A block as upstream writes it."""
        rows = [f"  {name}: {value}" for name, value in facts.items()]
        self.lines(RULER, f"ERROR: {title}", RULER, *rows, f"  {remedy}...", RULER, own=own)

    def row(self, row: Row) -> None:
        """One step: its row, and now and then a line."""
        step = int(row["step"])
        if self._rows is not None:
            kept = {key: row[key] for key in UPSTREAM_KEYS} if self.is_upstream else row
            self._rows.write(_json(kept, strict=not self.is_upstream) + "\n")
        if self.rank == 0 and self.is_upstream:
            self._write(self._bar(row))
        elif self.rank == 0 and step % self.settings.run.log_every == 0:
            self.lines(_line(row, self.settings.schedule.steps))

    def evaluation(self, done: int, of: int) -> None:
        """Announce an evaluation, and its end, as a progress bar does."""
        if self.rank == 0:
            rest = "00:00<00:00" if done else "00:00<?, ?it/s"
            self.lines(
                f"Eval: {100 * done // of:3d}%|{'█' * (10 * done // of):10}| {done}/{of} [{rest}]"
            )

    def close(self) -> None:
        """The last row, and the end of the bar."""
        if self._rows is not None:
            self._rows.close()
            if self.is_upstream:
                self._write("\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _banner(self, *, resumed: bool) -> str:
        run, data = self.settings.run, self.settings.data
        title = "Resuming" if resumed else "Starting"
        return (
            f"*** {title} MMDiT with Joint Text-Latent Diffusion ***\n"
            f"Working directory: {self.settings.folder.resolve()}\n"
            f"* Per-device batch size: {data.batch_size}\n"
            f"* Mode: {self.settings.objective.mode}\n"
            f"* Seed: {run.seed}"
        )

    def _bar(self, row: Row) -> str:
        steps, done = self.settings.schedule.steps, int(row["step"]) + 1
        elapsed = time.monotonic() - self._bar_began
        rate = done / elapsed
        shown = {key: float(row[key]) for key in ("loss", "text_loss", "latent_loss")}
        text = (
            f"\rTraining: {100 * done // steps:3d}%|{'█' if done == steps else ' '}| {done}/{steps}"
            f" [{_clock(elapsed)}<{_clock((steps - done) / rate)}, {rate:5.2f}it/s,"
            f" Epoch={row['epoch']}/1, Progress={100 * done / steps:.1f}%,"
            f" Loss={shown['loss']:.4f}, Text={shown['text_loss']:.4f},"
            f" Latent={shown['latent_loss']:.4f}]"
        )
        return text[: BAR_COLUMNS + 1]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"


def _line(row: Row, steps: int) -> str:
    fields = (
        f"{key}: {row[key]:.4g}" if isinstance(row[key], float) else f"{key}: {row[key]}"
        for key in LINE_KEYS
    )
    return f"step: {row['step']}/{steps} " + " ".join(fields)


def _json(row: Row, *, strict: bool) -> str:
    if strict:
        row = {
            key: json.dumps(value)
            if isinstance(value, float) and not math.isfinite(value)
            else value
            for key, value in row.items()
        }
    return json.dumps(row)


def _close_last_line(path: Path) -> None:
    """A killed process may have left half a row: what follows begins on a line of its own."""
    try:
        with path.open("rb+") as file:
            if file.seek(0, 2) and (file.seek(-1, 2), file.read(1))[1] != b"\n":
                file.write(b"\n")
    except FileNotFoundError:
        pass
