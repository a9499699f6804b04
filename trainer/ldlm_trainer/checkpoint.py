"""Checkpoints that are whole or not there, and how many of them stay.

`{run}/step_00000500/` holds `model.pt`, `optim.pt`, `rng.pt` and `meta.json`, `latest`
is a symbolic link. A checkpoint is written under a name that nobody reads, synced,
renamed, and only then linked; older ones are deleted last, and never the last one that
can be read.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import re
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import FSDPModule

from ldlm_trainer.errors import TrainerError

if TYPE_CHECKING:
    from collections.abc import Mapping

META = "meta.json"
FILES = ("model.pt", "optim.pt", "rng.pt")
_NAME = re.compile(r"step_(\d{8,})")
_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)

Open = Callable[[Path], BinaryIO]


def _open(path: Path) -> BinaryIO:
    return path.open("wb")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One that is whole by its own account. `step` steps had been taken when it was written."""

    path: Path
    step: int
    meta: Mapping[str, Any]

    def load(self, device: torch.device) -> dict[str, Any]:
        """Its files by stem. Tensors and plain values only are read from them."""
        return {
            Path(name).stem: torch.load(self.path / name, map_location=device, weights_only=True)
            for name in FILES
        }


class _Hashed(io.RawIOBase):
    """A file that counts what is written into its SHA-256."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.sum = file, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._file.write(view)
        self.sum.update(view)
        return len(view)


class Keeper:
    """The checkpoints of one run.

    `keep` of them stay, at least one, and for ever those of steps that are multiples of
    `milestone_every`, the best one, and `source`, from which this launch resumed.
    """

    def __init__(
        self, folder: Path, *, keep: int, milestone_every: int = 0, opened: Open = _open
    ) -> None:
        self.folder, self.keep, self.milestone_every = folder, max(1, keep), milestone_every
        self.best: int | None = None
        self.source: Path | None = None
        self._opened = opened

    def save(self, step: int, state: Mapping[str, object], meta: Mapping[str, Any]) -> Path:
        """Write the checkpoint of `step`; raises OSError, and leaves the others as they are."""
        final, writing = self.folder / f"step_{step:08d}", self.folder / f".writing-{step:08d}"
        replaced = self.folder / f".replaced-{step:08d}"
        for left in (*self.folder.glob(".writing-*"), *self.folder.glob(".replaced-*")):
            shutil.rmtree(left)  # by a writer that was killed
        writing.mkdir(parents=True)
        try:
            sums = {name: self._write(writing / name, state[Path(name).stem]) for name in FILES}
            whole = {**meta, "step": step, "sha256": sums, "complete": True}
            with self._opened(writing / META) as file:
                file.write(json.dumps(whole, indent=1).encode())
                _sync(file)
            _sync_folder(writing)
            if final.exists():  # the same step again, after a resume from an earlier one
                final.rename(replaced)
            writing.rename(final)
        except BaseException:
            shutil.rmtree(writing, ignore_errors=True)
            raise
        self._link(final)
        _sync_folder(self.folder)
        shutil.rmtree(replaced, ignore_errors=True)
        self._prune(just_written=step)
        return final

    def _write(self, path: Path, state: object) -> str:
        with self._opened(path) as file:
            hashed = _Hashed(file)
            torch.save(state, cast(IO[bytes], hashed))
            _sync(file)
        return hashed.sum.hexdigest()

    def _link(self, final: Path) -> None:
        link = self.folder / ".latest"
        link.unlink(missing_ok=True)
        link.symlink_to(final.name)
        link.replace(self.folder / "latest")

    def _prune(self, just_written: int) -> None:
        found = self.all()
        newest = [c.step for c in found][-self.keep :]
        protected = {*newest, just_written, self.best}
        milestones = self.milestone_every
        for checkpoint in found:
            stays = (
                checkpoint.step in protected
                or (milestones and checkpoint.step % milestones == 0)
                or checkpoint.path == self.source
            )
            if not stays:
                shutil.rmtree(checkpoint.path)

    def all(self) -> list[Checkpoint]:
        """Those that say they are complete, in rising order of steps."""
        found = []
        for path in self.folder.glob("step_*"):
            if _NAME.fullmatch(path.name) and (checkpoint := _described(path)):
                found.append(checkpoint)
        return sorted(found, key=lambda checkpoint: checkpoint.step)

    def newest_good(self) -> Checkpoint | None:
        """The newest one whose files are what was written; None: there is none."""
        return next((c for c in reversed(self.all()) if is_good(c)), None)


class Writer:
    """Writes checkpoints in a thread, one at a time, so that the training need not wait."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[Path] | None = None

    def start(
        self, step: int, state: Mapping[str, object], meta: Mapping[str, Any], *, beside: bool
    ) -> None:
        """Begin to write; `beside`: steps go on meanwhile, so that what is written is a copy."""
        given = {name: _copied(value) for name, value in state.items()} if beside else state
        self._writing = self._thread.submit(self._keeper.save, step, given, meta)

    def finish(self) -> Path | None:
        """Wait for what was begun; None: nothing was. Raises OSError where it failed."""
        writing, self._writing = self._writing, None
        return None if writing is None else writing.result()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()


def is_good(checkpoint: Checkpoint) -> bool:
    """Whether every file has the SHA-256 that was noted when it was written."""
    sums = checkpoint.meta.get("sha256", {})
    try:
        return all(_sum(checkpoint.path / name) == sums.get(name) for name in FILES)
    except OSError:
        return False


def open_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint that a user names; raises `TrainerError` where it is damaged."""
    checkpoint = _described(path.resolve())
    if checkpoint is None or not is_good(checkpoint):
        raise TrainerError(
            "no whole checkpoint",
            where=f"run.resume: {path}",
            remedy="name a folder step_NNNNNNNN, or take run.resume=auto",
        )
    return checkpoint


def _described(path: Path) -> Checkpoint | None:
    try:
        meta = json.loads((path / META).read_text(encoding="utf-8"))
        if meta.get("complete") is not True:
            return None
        return Checkpoint(path, int(meta["step"]), meta)
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copied(state: object) -> Any:
    """A copy in the host's memory, which later steps do not change."""
    match state:
        case torch.Tensor():
            return state.detach().to("cpu", copy=True)
        case dict():
            return {key: _copied(value) for key, value in state.items()}
        case list():
            return [_copied(value) for value in state]
    return state


def learned_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Weights and optimizer state, whole, for rank 0; all ranks of a sharded model call it."""
    if not isinstance(model, FSDPModule):
        return {"model": model.state_dict(), "optim": optimizer.state_dict()}
    weights, state = get_state_dict(model, optimizer, options=_WHOLE)
    return {"model": weights, "optim": state}


def restore_learned(
    model: nn.Module, optimizer: torch.optim.Optimizer, held: Mapping[str, Any]
) -> None:
    """Go on with the weights and optimizer state of a checkpoint; each rank has read it whole.

    Raises RuntimeError, ValueError or KeyError where they are those of another model, or of one
    that was sharded where this is not.
    """
    if isinstance(model, FSDPModule):
        set_state_dict(
            model, optimizer, model_state_dict=held["model"], optim_state_dict=held["optim"],
            options=_WHOLE,
        )  # fmt: skip
    else:
        model.load_state_dict(held["model"])
        optimizer.load_state_dict(held["optim"])


def random_state() -> dict[str, Any]:
    """Random numbers of this rank that are no function of the step: dropout's."""
    version, numbers, gauss = random.getstate()
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": [version, list(numbers), gauss],
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random(state: dict[str, Any]) -> None:
    """Go on with the random numbers of a checkpoint."""
    torch.set_rng_state(state["torch"].cpu())
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"].cpu())
