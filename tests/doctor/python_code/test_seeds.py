"""What the design notes propose for MM-LDLM, as they have it: what is wrong with it is found."""

import re
from pathlib import Path

import pytest

from tests.doctor.python_code.code_audits import ids

SEEDS = Path(__file__).parents[4] / "shared" / "seeds"
pytestmark = pytest.mark.skipif(
    not SEEDS.is_dir(), reason="the design notes are not beside this repository"
)
LOOP = """
import shutil
from pathlib import Path
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from mmdit.mmdit_generalized_pytorch import MMDiT

class Trainer(torch.nn.Module):
    def forward(self, batch, mode):
        for p in self.frozen[mode].parameters():
            p.requires_grad = False
        return self.inner(batch)

def run(opt_trainer, batches, optimizer, local_rank, is_distributed):
{wrap}
    for state_step, batch in enumerate(batches):
        loss = ddp_trainer(batch.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def passages(containing: str) -> list[str]:
    """The Python passages of the notes that have this in them, without the lines around it."""
    found = []
    for note in sorted(SEEDS.glob("*.md")):
        text = note.read_text(encoding="utf-8", errors="replace")
        found += re.findall(r"```python\n(.*?)```", text, re.S)
    return [passage for passage in found if containing in passage]


def indented(text: str, by: int) -> str:
    return "".join(" " * by + line if line.strip() else line for line in text.splitlines(True))


def new_half(passage: str) -> str:
    return passage.partition("# NEW")[2].partition("\n")[2] if "# NEW" in passage else passage


def test_the_ddp_options_crash_where_modes_freeze() -> None:
    blocks = passages("find_unused_parameters=False")
    assert len(blocks) >= 3
    for block in blocks:
        code = LOOP.replace("{wrap}", indented(new_half(block), 4))
        wanted = (
            "ddp-static-graph-with-modes"
            if "static_graph" in block
            else ("ddp-modes-freeze-parameters")
        )
        assert wanted in ids(code), block


def test_the_checkpoint_of_the_backbone_is_called_by_position() -> None:
    blocks = [b for b in passages("self.mmdit,") if "class " not in b]
    assert blocks
    for block in blocks:
        body = indented(new_half(block), 8)
        code = (
            "from mmdit.mmdit_generalized_pytorch import MMDiT\nimport torch\n\n"
            "class Joint(torch.nn.Module):\n"
            "    def __init__(self, config):\n"
            "        self.mmdit = MMDiT(depth=24)\n\n"
            "    def forward(self, text_emb, latent_emb, text_mask, latent_mask, c):\n"
            f"{body}        return text_out\n"
        )
        found = ids(code)
        assert "checkpoint-keyword-only-call" in found, code
        assert "checkpoint-whole-backbone" in found


def test_the_rotations_are_unsafe() -> None:
    blocks = passages("def cleanup_old_checkpoints")
    assert len(blocks) >= 3
    for block in blocks:
        found = ids("import shutil\nfrom pathlib import Path\n" + block)
        assert "rotation-keep-zero" in found, block
        takes_anything = "iterdir" in block
        assert ("rotation-deletes-foreign" in found) == takes_anything


def test_the_cosine_loss_changes_its_weight() -> None:
    blocks = [b for b in passages("F.cosine_similarity") if "def " not in b]
    assert blocks
    for block in blocks:
        code = LOOP.replace("{wrap}", "    ddp_trainer = opt_trainer").replace(
            "        loss.backward()", indented(new_half(block), 8) + "        loss.backward()"
        )
        assert "loss-weight-changed-by-cosine" in ids(code), code


def test_workers_that_a_division_may_leave_at_zero_raise() -> None:
    (block,) = passages("os.cpu_count() // world_size")
    code = "import os\n" + LOOP.replace("{wrap}", indented(block, 4) + "\n    ddp_trainer = None")
    assert "loader-workers-may-be-zero" in ids(code)
