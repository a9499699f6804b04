"""Each defect alone in a project that has no other: it is found, there, and nothing else is."""

import ast
import difflib
from dataclasses import dataclass

import pytest

from ldlm_doctor.model import checks
from tests.doctor.python_code.code_audits import clean, findings, mended


@dataclass(frozen=True)
class Planted:
    check: str
    file: str
    old: str
    new: str
    line: str
    """A part of the line that the finding names."""
    fixed: str | None = None
    """What the line, or what was added, is after the edit; None: no edit is offered."""
    also: tuple[str, ...] = ()
    at: str | None = None
    """The file of the finding, where that is not the one with the defect."""


WITH_WORKERS = '    num_workers = config["data"]["num_workers"]\n'
GUARDED_OPTIONS = """        persistent_workers=num_workers > 0,  # torch refuses it without workers
        prefetch_factor=4 if num_workers > 0 else None,
"""
DEFECTS = [
    Planted(
        "loader-persistent-workers", "data.py",
        WITH_WORKERS, "    num_workers = 4\n",
        "DataLoader(",
    ),
    Planted(
        "loader-persistent-workers", "data.py",
        WITH_WORKERS, '    num_workers = config["data"].get("num_workers", 4)\n',
        "DataLoader(",
    ),
    Planted(
        "loader-options-without-workers", "data.py",
        "num_workers=num_workers,", "num_workers=0,", "DataLoader(", "persistent_workers=False",
    ),
    Planted(
        "loader-workers-may-be-zero", "data.py",
        WITH_WORKERS, "    num_workers = min(8, len(os.sched_getaffinity(0)) // world_size)\n",
        "DataLoader(",
    ),
    Planted(
        "loader-too-many-workers", "data.py",
        WITH_WORKERS, '    num_workers = config["data"].get("workers_of_a_rank", 16)\n',
        "DataLoader(",
    ),
    Planted(
        "loader-too-many-workers", "data.py",
        WITH_WORKERS, "    num_workers = os.cpu_count()\n", "DataLoader(",
    ),
    Planted(
        "sampler-set-epoch", "train.py",
        "        sampler.set_epoch(epoch)\n", "", "DistributedSampler(", at="data.py",
    ),
    Planted(
        "ddp-find-unused-parameters", "train.py",
        "find_unused_parameters=False", "find_unused_parameters=True", "find_unused",
    ),
    Planted(
        "ddp-bypassed", "train.py",
        "loss = model(tokens, targets)", "loss = model.module(tokens, targets)", "model.module(",
    ),
    Planted(
        "ddp-gradient-as-bucket-view", "train.py",
        "        gradient_as_bucket_view=True,\n", "", "DDP(", "gradient_as_bucket_view=True",
    ),
    Planted(
        "ddp-static-graph-with-no-sync", "train.py",
        "gradient_as_bucket_view=True,",
        "gradient_as_bucket_view=True,\n        static_graph=True,",
        "static_graph", "static_graph=False",
    ),
    Planted(
        "process-group-timeout-days", "train.py",
        "timedelta(minutes=10)", "timedelta(seconds=12000000)", "init_process_group",
    ),
    Planted(
        "process-group-timeout-long", "train.py",
        "timedelta(minutes=10)", "timedelta(hours=3)", "init_process_group",
    ),
    Planted(
        "heartbeat-timeout-days", "train.py",
        'os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")',
        'os.environ["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] = "12000000"  # 138 days',
        "HEARTBEAT", 'os.environ["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] = "480"  # 138 days',
    ),
    Planted(
        "nccl-monitoring-off", "train.py",
        'os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")',
        "os.environ['TORCH_NCCL_ENABLE_MONITORING'] = '0'",
        "MONITORING", "os.environ['TORCH_NCCL_ENABLE_MONITORING'] = '1'",
    ),
    Planted(
        "nccl-timeout-unread", "train.py",
        'os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")',
        'os.environ.update(NCCL_TIMEOUT="7200")', "NCCL_TIMEOUT",
    ),
    Planted(
        "nccl-name-deprecated", "train.py",
        'os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")',
        'os.environ["NCCL_ASYNC_ERROR_HANDLING"] = "1"',
        "ASYNC",
    ),
    Planted(
        "nccl-blocking-wait", "train.py",
        'os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")',
        'os.environ["TORCH_NCCL_BLOCKING_WAIT"] = str(1)',
        "BLOCKING", 'os.environ["TORCH_NCCL_BLOCKING_WAIT"] = str(0)',
    ),
    Planted(
        "nccl-async-error-handling-off", "train.py",
        'os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")',
        'os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"', "ASYNC",
    ),
    Planted(
        "nan-skip-on-one-rank", "train.py",
        "                (loss / accumulation).backward()\n",
        "                if torch.isnan(loss) or torch.isinf(loss):\n"
        "                    optimizer.zero_grad(set_to_none=True)\n"
        "                    continue\n"
        "                (loss / accumulation).backward()\n",
        "if torch.isnan(loss)",
    ),
    Planted(
        "collective-on-one-rank", "train.py",
        "args.keep)\n                dist.barrier()\n",
        "args.keep)\n                    dist.barrier()\n",
        "dist.barrier()",
    ),
    Planted(
        "loss-clamped", "train.py",
        "                (loss / accumulation).backward()\n",
        "                loss = torch.clamp(loss, min=0.0, max=100.0)\n"
        "                (loss / accumulation).backward()\n",
        "torch.clamp",
    ),
    Planted(
        "loss-nan-to-num", "model.py",
        "        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())",
        "        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())\n"
        "        return torch.nan_to_num(loss)",
        "nan_to_num",
    ),
    Planted(
        "weights-in-half-precision", "train.py",
        "Denoiser().to(device)", "Denoiser().to(device).to(torch.bfloat16)", "bfloat16",
    ),
    Planted(
        "accumulation-without-no-sync", "train.py",
        "            with nullcontext() if is_last else model.no_sync():\n",
        "            with nullcontext():\n", "backward()",
    ),
    Planted(
        "model-no-activation-checkpointing", "model.py",
        "            if self.training and torch.is_grad_enabled():\n"
        "                hidden = checkpoint(block, hidden, use_reentrant=False)\n"
        "            else:\n"
        "                hidden = block(hidden)\n",
        "            hidden = block(hidden)\n", "for block in self.blocks",
    ),
    Planted(
        "checkpoint-not-atomic", "saving.py",
        '    temporary = folder / "checkpoint.pt.tmp"\n'
        "    torch.save(checkpoint, temporary)\n"
        '    os.replace(temporary, folder / "checkpoint.pt")\n',
        '    torch.save(checkpoint, folder / "checkpoint.pt")\n', "torch.save",
    ),
    Planted(
        "checkpoint-deleted-before-saved", "saving.py",
        "    folder.mkdir(parents=True, exist_ok=True)\n",
        "    if folder.exists():\n        shutil.rmtree(folder)\n"
        "    folder.mkdir(parents=True, exist_ok=True)\n", "rmtree(folder)",
    ),
    Planted(
        "rotation-keep-zero", "saving.py",
        '    if keep < 1:\n        raise ValueError("at least one checkpoint stays")\n', "",
        "rmtree(old)",
    ),
    Planted(
        "rotation-deletes-foreign", "saving.py",
        '        if re.fullmatch(r"step_\\d{8}", folder.name) and '
        '(folder / "checkpoint.pt").exists():\n',
        "        if folder.is_dir():\n", "rmtree(old)",
    ),
    Planted(
        "loop-left-by-one-rank", "train.py",
        "                if rank == 0:\n",
        "                if rank == 0:\n                    if os.path.exists(\"stop\"):\n"
        "                        break\n",
        "break",
    ),
    Planted(
        "zero-grad-missing", "train.py",
        "            optimizer.zero_grad(set_to_none=True)\n", "", "optimizer.step()",
        "                optimizer.zero_grad()",
    ),
]  # fmt: skip


def planted(defect: Planted) -> dict[str, str]:
    files = clean()
    assert files[defect.file].count(defect.old) == 1
    files[defect.file] = files[defect.file].replace(defect.old, defect.new)
    if "os." in defect.new and "import os" not in files[defect.file]:
        files[defect.file] = "import os\n\n" + files[defect.file]
    if defect.check == "ddp-unsynced-batch-norm":
        files["model.py"] = files["model.py"].replace("nn.LayerNorm", "nn.BatchNorm1d")
    if defect.check == "loader-persistent-workers":
        files["data.py"] = files["data.py"].replace(GUARDED_OPTIONS, "")
    if defect.check in ("loader-workers-may-be-zero", "loader-options-without-workers"):
        files["data.py"] = files["data.py"].replace(
            GUARDED_OPTIONS, "        persistent_workers=True,\n        prefetch_factor=4,\n"
        )
    if defect.check == "resume-without-optimizer":
        for name in ("optimizer", "scheduler"):  # what is not saved is not loaded either
            if f'"{name}": {name}' not in files["saving.py"]:
                loaded = f'    {name}.load_state_dict(checkpoint["{name}"])\n'
                files["saving.py"] = files["saving.py"].replace(loaded, "")
    if defect.check == "checkpoint-not-atomic":
        # one name for all steps
        files["train.py"] = files["train.py"].replace('f"step_{step:08d}"', '"latest"')
    return files


def named(defect: Planted) -> str:
    return f"{defect.check}: {defect.line}"


def test_the_clean_project_has_no_finding() -> None:
    assert findings(clean()) == []


@pytest.mark.parametrize("defect", DEFECTS, ids=named)
def test_the_defect_is_found_where_it_stands_and_no_other(defect: Planted) -> None:
    files = planted(defect)

    found = findings(files)

    assert {f.check.id for f in found} == {defect.check, *defect.also}
    (ours,) = [f for f in found if f.check.id == defect.check]
    assert ours.path == (defect.at or defect.file)
    assert defect.line in ours.evidence
    assert files[ours.path].splitlines()[ours.line - 1].strip() == ours.evidence
    assert bool(ours.edits) or defect.fixed is None


@pytest.mark.parametrize("defect", [d for d in DEFECTS if d.fixed is not None], ids=named)
def test_the_edit_mends_it_and_touches_no_other_line(defect: Planted) -> None:
    files = planted(defect)

    after = mended(files, defect.check)

    ast.parse(after[defect.file])
    assert defect.fixed is not None
    assert defect.fixed in after[defect.file]
    assert defect.check not in {f.check.id for f in findings(after)}
    before = files[defect.file].splitlines()
    kept = difflib.SequenceMatcher(a=before, b=after[defect.file].splitlines(), autojunk=False)
    same = sum(block.size for block in kept.get_matching_blocks())
    assert same >= len(before) - 2  # the line that is edited, and one whose comma came
    assert mended(after, defect.check) == after, "twice is once"


def test_every_check_says_why_where_from_and_what_to_do() -> None:
    for check in checks().values():
        assert all((check.id, check.title, check.why, check.source, check.fix)), check.id


NEEDS_ITS_OWN_TEST = {
    "python-not-parsed", "ddp-modes-freeze-parameters", "ddp-static-graph-with-modes",
    "resume-cannot-work", "resume-random-anew", "resume-drops-saved-state",
    "clip-before-unscale", "loss-weight-changed-by-cosine",
    "accumulation-unread", "checkpoint-keyword-only-call", "checkpoint-whole-backbone",
    "checkpoint-no-rotation", "split-differs-between-ranks",
    "unscale-every-micro-batch",
    "plateau-by-rank", "barrier-not-in-finally", "sampler-seed-by-rank",
    "noise-equal-on-ranks", "evaluation-of-one-rank", "steps-end-no-loop",
}  # fmt: skip


def test_every_check_is_planted_here_or_has_a_test_of_its_own() -> None:
    planted = {d.check for d in DEFECTS} & set(checks("python"))
    assert set(checks("python")) == planted | NEEDS_ITS_OWN_TEST
