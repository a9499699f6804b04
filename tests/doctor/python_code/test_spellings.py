"""The same defects in trainers of other styles: classes, several files, frameworks, sharding."""

import ast
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.doctor.python_code.code_audits import findings, mended

TRAINERS = Path(__file__).parent / "trainers"
STYLES = {
    "class": ("class_based/trainer.py",),
    "functional": ("functional/main.py", "functional/engine.py", "functional/misc.py"),
    "accelerate": ("accelerate_loop.py",),
    "lightning": ("lightning_module.py",),
    "hf": ("hf_trainer.py",),
    "sharded": ("sharded.py",),
    "deepspeed": ("deepspeed_loop.py",),
    "flat": ("flat_script.py",),
}


def trainer(style: str) -> dict[str, str]:
    return {
        Path(name).name: (TRAINERS / name).read_text(encoding="utf-8") for name in STYLES[style]
    }


@pytest.mark.parametrize("style", STYLES)
def test_a_trainer_without_defects_has_no_finding(style: str) -> None:
    assert findings(trainer(style)) == []


class Spelled(NamedTuple):
    """A defect: `old` becomes `new`, and `line` is a part of the line that is named."""

    check: str
    style: str
    file: str
    old: str
    new: str
    line: str


STEPS = "        self.scaler.step(self.optimizer)\n        self.scaler.update()\n"
SYNC = "            if step % self.args.log_every == 0 and self.gpu_id == 0:\n"
GUARD = "            if self.gpu_id == 0:\n                self._save_snapshot(epoch)\n"
LOG = "        if data_iter_step % args.log_every == 0:\n"
BACKWARD = "            loss.backward()\n"
MEAN = "            mean = loss.detach().clone()\n"
STOP = "        if stopped.item():\n            break\n"
TOLD = "        if optimizer.param_groups[0]"
CLASS, ENGINE, MAIN, MISC = "trainer.py", "engine.py", "main.py", "misc.py"
DEFECTS = [
    Spelled("sampler-set-epoch", "class", CLASS,
     "        self.loader.sampler.set_epoch(epoch)\n", "", "DistributedSampler(dataset)"),
    Spelled("loader-options-without-workers", "class", CLASS,
     "num_workers=2", "num_workers=0", "DL("),
    Spelled("loader-options-without-workers", "functional", MAIN,
     '"num_workers": 2', '"num_workers": 0', "DataLoader(train_set"),
    Spelled("loader-persistent-workers", "functional", MAIN, ', "persistent_workers": True', "",
     "DataLoader(train_set"),
    Spelled("clip-before-unscale", "class", CLASS,
     "        self.scaler.unscale_(self.optimizer)\n", "", "clip_grad_norm_"),
    Spelled("clip-before-unscale", "flat", "flat_script.py",
     "        scaler.unscale_(optimizer)\n", "", "clip_grad_norm_"),
    Spelled("zero-grad-missing", "functional", ENGINE,
     "    optimizer.zero_grad()\n    running", "    running", "optimizer.step()"),
    Spelled("nan-skip-on-one-rank", "functional", ENGINE, BACKWARD,
     "            if not torch.isfinite(loss):\n                continue\n" + BACKWARD, "isfinite"),
    Spelled("nan-skip-on-one-rank", "functional", ENGINE, BACKWARD,
     "            if math.isnan(loss.item()):\n                break\n" + BACKWARD, "math.isnan"),
    Spelled("nan-skip-on-one-rank", "class", CLASS, "        self.scaler.scale(loss)",
     "        if torch.isnan(loss):\n            return None\n        self.scaler.scale(loss)",
     "isnan(loss)"),
    Spelled("nan-skip-on-one-rank", "sharded", "sharded.py", "        loss.backward()\n",
     "        if loss.isnan().any():\n            continue\n        loss.backward()\n", "isnan()"),
    Spelled("loop-left-by-one-rank", "class", CLASS, GUARD,
     GUARD + "                if self.should_stop(epoch):\n                    break\n", "break"),
    Spelled("loop-left-by-one-rank", "functional", MAIN,
     "        dist.broadcast(stopped, src=0)\n" + STOP,
     "        stop = False\n        if is_main_process():\n            stop = val_loss < 1.0\n"
     "        if stop:\n            break\n", "if stop"),
    Spelled("loop-left-by-one-rank", "sharded", "sharded.py", "        if step % config.save",
     "        if loss.item() < config.target:\n            break\n        if step % config.save",
     "config.target"),
    Spelled("loop-left-by-one-rank", "accelerate", "accelerate_loop.py",
     "        accelerator.save_state(",
     "            if torch.stack(losses).mean() < 1.0:\n                break\n"
     "        accelerator.save_state(", "break"),
    Spelled("collective-on-one-rank", "class", CLASS, "            dist.barrier()\n",
     "                dist.barrier()\n", "dist.barrier()"),
    Spelled("collective-on-one-rank", "functional", MISC, "    path = os.path.join(",
     "    dist.barrier()\n    path = os.path.join(", "save_checkpoint("),
    Spelled("collective-on-one-rank", "sharded", "sharded.py", MEAN, "            if rank != 0:\n"
     "                continue\n" + MEAN, "dist.all_reduce"),
    Spelled("collective-on-one-rank", "sharded", "sharded.py", "            dcp.save(",
     "            if rank == 0: dcp.save(", "dcp.save"),
    Spelled("collective-on-one-rank", "accelerate", "accelerate_loop.py",
     "        accelerator.wait_for_everyone()\n        if accelerator.is_main_process:\n",
     "        if accelerator.is_main_process:\n            accelerator.wait_for_everyone()\n",
     "wait_for_everyone"),
    Spelled("collective-on-one-rank", "lightning", "lightning_module.py",
     '        gathered = self.all_gather(self.trainer.callback_metrics["train_loss"])\n'
     "        if self.trainer.is_global_zero:\n",
     "        if self.trainer.is_global_zero:\n"
     '            gathered = self.all_gather(self.trainer.callback_metrics["train_loss"])\n',
     "self.all_gather"),
    Spelled("collective-on-one-rank", "lightning", "lightning_module.py",
     '        self.log("val_loss", loss, sync_dist=True)\n',
     '        if self.global_rank == 0:\n            self.log("val_loss", loss, sync_dist=True)\n',
     "self.log("),
    Spelled("collective-on-one-rank", "lightning", "lightning_module.py",
     '    trainer.save_checkpoint("final.ckpt")\n',
     '    if trainer.is_global_zero:\n        trainer.save_checkpoint("final.ckpt")\n',
     "save_checkpoint"),
    Spelled("collective-on-one-rank", "deepspeed", "deepspeed_loop.py",
     "            model_engine.save_checkpoint(args.save_dir",
     "            if dist.get_rank() == 0: model_engine.save_checkpoint(args.save_dir",
     "save_checkpoint"),
    Spelled("collective-on-one-rank", "deepspeed", "deepspeed_loop.py",
     "            dist.barrier()\n            if dist.get_rank() == 0:\n",
     "            if dist.get_rank() == 0:\n                dist.barrier()\n", "dist.barrier()"),
    Spelled("accumulation-without-no-sync", "functional", ENGINE,
     "contextlib.nullcontext() if updates else model.no_sync()", "contextlib.nullcontext()",
     "loss.backward()"),
    Spelled("accumulation-unread", "flat", "flat_script.py", "grad_clip = 1.0\n",
     "grad_clip = 1.0\ngrad_accum = 8\n", "grad_accum = 8"),
    Spelled("checkpoint-not-atomic", "class", CLASS,
     '        torch.save(snapshot, self.args.snapshot + ".new")\n'
     '        os.replace(self.args.snapshot + ".new", self.args.snapshot)\n',
     '        torch.save(snapshot, "snapshot.pt")\n', "torch.save"),
    Spelled("checkpoint-not-atomic", "functional", MISC,
     '    torch.save(state, path + ".part")\n    os.replace(path + ".part", path)\n',
     "    torch.save(state, path)\n", "torch.save"),
    Spelled("weights-in-half-precision", "class", CLASS, "model.to(self.gpu_id)\n",
     "model.to(self.gpu_id).bfloat16()\n", "bfloat16"),
    Spelled("ddp-find-unused-parameters", "functional", MAIN,
     "[args.local_rank], gradient", "[args.local_rank], find_unused_parameters=True, gradient",
     "find_unused_parameters"),
    Spelled("process-group-timeout-days", "sharded", "sharded.py", "timedelta(minutes=20)",
     "timedelta(days=7)", "days=7"),
    Spelled("loss-clamped", "lightning", "lightning_module.py",
     '        self.log("train_loss", loss)\n',
     "        loss = loss.clamp(max=10.0)\n", "clamp"),
    Spelled("loss-nan-to-num", "hf", "hf_trainer.py", "outputs.loss * self.args.loss_weight\n",
     "outputs.loss\n        loss = torch.nan_to_num(loss)\n", "nan_to_num"),
]  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda d: f"{d.check}-{d.style}")
def test_a_planted_defect_is_found_in_any_style(defect: Spelled) -> None:
    files = trainer(defect.style)
    if defect.check == "zero-grad-missing":  # two places
        files[ENGINE] = files[ENGINE].replace("            optimizer.zero_grad()\n", "")
    assert files[defect.file].count(defect.old) == 1, defect.old
    files[defect.file] = files[defect.file].replace(defect.old, defect.new)
    ast.parse(files[defect.file])

    found = findings(files)

    # a loss that is read for the test of it makes the GPU wait as well
    ours = [f for f in found if f.check.id == defect.check or f.check.id != "sync-every-step"]
    assert [f.check.id for f in ours] == [defect.check]
    assert defect.line in ours[0].evidence
    again = mended(files)
    for text in again.values():
        ast.parse(text)
    if ours[0].edits:
        assert findings(again) == []
