"""What the tests of the doctor's Python checks share: projects in memory, and edits applied."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from ldlm_doctor.model import Edit, Finding, Kind, Project, SourceFile
from ldlm_doctor.python_code import audit

CLEAN = Path(__file__).parent / "clean"
_KINDS = {".py": Kind.PYTHON, ".yaml": Kind.YAML}

TRAINING_LOOP = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, loader, optimizer, scaler, scheduler, rank):
    model = DDP(model.cuda(), gradient_as_bucket_view=True)
    for step, batch in enumerate(loader):
        loss = model(batch)
{turn}
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
"""A loop on several GPUs; `turn` is what it does between forward and backward."""


def clean() -> dict[str, str]:
    """The project without a defect."""
    paths = (path for path in CLEAN.iterdir() if path.suffix in _KINDS)
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(paths)}


def findings(files: Mapping[str, str | bytes]) -> list[Finding]:
    held = []
    for path, text in files.items():
        content = text.encode() if isinstance(text, str) else text
        held.append(SourceFile(path, _KINDS[Path(path).suffix], content))
    return list(audit(Project(tuple(held))))


def ids(files: Mapping[str, str | bytes] | str) -> list[str]:
    """The checks that found something, in the order of lines."""
    held = {"train.py": files} if isinstance(files, str) else files
    return [finding.check.id for finding in findings(held)]


def in_turn(code: str) -> str:
    """The training loop with some lines of one turn."""
    indented = "\n".join(" " * 8 + line if line else line for line in code.splitlines())
    return TRAINING_LOOP.format(turn=indented)


def applied(content: bytes, edits: Iterable[Edit]) -> bytes:
    """The content with all edits made; those at one byte in the order given."""
    last_first = sorted(edits, key=lambda each: (each.start, each.end))[::-1]
    for edit in last_first:
        content = content[: edit.start] + edit.text + content[edit.end :]
    return content


def mended(files: Mapping[str, str], wanted: str | None = None) -> dict[str, str]:
    """All files with the edits of all findings, or of those of one check."""
    found = [f for f in findings(files) if wanted is None or f.check.id == wanted]
    edits = [edit for finding in found for edit in finding.edits]
    return {
        path: applied(text.encode(), [e for e in edits if e.path == path]).decode()
        for path, text in files.items()
    }
