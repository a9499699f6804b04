"""DDP with modes that freeze parameters, and checkpoints of activations: what upstream has,
what was proposed for it, and what works."""

import pytest

from tests.doctor.python_code.code_audits import findings, ids, mended

TRAINER = """
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from objective import Objective


def main(loader, optimizer, backbone, rank):
    objective = Objective(backbone).cuda()
    model = DDP(objective, device_ids=[rank], gradient_as_bucket_view=True{options})
    for step, batch in enumerate(loader):
        loss = model(batch, step)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
OBJECTIVE = """
from torch import nn


class Objective(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone

    def _freeze_unneeded(self, mode):
        for parameter in self.backbone.parameters():
            parameter.requires_grad = True
        if mode == "l2t":
            for parameter in self.backbone.latent_parameters():
                parameter.requires_grad = False

    def forward(self, batch, step):
        self._freeze_unneeded("l2t" if step % 2 else "t2l")
        return self.backbone(batch)
"""
FROZEN_BEFORE = OBJECTIVE.replace(
    '        self._freeze_unneeded("l2t" if step % 2 else "t2l")\n', ""
)


def project(options: str, objective: str = OBJECTIVE) -> dict[str, str]:
    return {"train.py": TRAINER.replace("{options}", options), "objective.py": objective}


@pytest.mark.parametrize("options", ["", ", find_unused_parameters=False"])
def test_modes_that_freeze_in_every_step_crash_without_find_unused_parameters(
    options: str,
) -> None:
    (found,) = findings(project(options))

    assert found.check.id == "ddp-modes-freeze-parameters"
    assert found.check.severity == "critical"
    assert "objective.py:15 freezes" in found.detail
    after = mended(project(options))
    assert "find_unused_parameters=True" in after["train.py"]
    assert after["objective.py"] == OBJECTIVE


def test_where_modes_freeze_the_search_for_unused_parameters_is_said_to_be_needed() -> None:
    (found,) = findings(project(", find_unused_parameters=True"))

    assert found.check.id == "ddp-find-unused-parameters"
    assert found.detail.startswith("needed as it is")
    assert found.edits == ()


@pytest.mark.parametrize(
    "options",
    [
        ", static_graph=True",
        ", find_unused_parameters=False, broadcast_buffers=False, static_graph=True",
    ],
)
def test_the_proposed_static_graph_crashes_at_the_first_change_of_mode(options: str) -> None:
    assert ids(project(options)) == ["ddp-static-graph-with-modes"]
    after = mended(project(options))
    assert "static_graph=False" in after["train.py"]
    assert "find_unused_parameters=True" in after["train.py"]
    assert ids(after) == ["ddp-find-unused-parameters"]


@pytest.mark.parametrize("options", ["", ", find_unused_parameters=False", ", static_graph=True"])
def test_what_is_frozen_before_ddp_wraps_it_is_fine(options: str) -> None:
    assert ids(project(options, FROZEN_BEFORE)) == []


def test_a_method_that_training_never_comes_to_does_not_count() -> None:
    unused = FROZEN_BEFORE.replace("def _freeze_unneeded", "def freeze_for_export")
    assert ids(project("", unused)) == []


def test_a_tensor_of_the_step_that_needs_no_gradient_is_no_parameter() -> None:
    tensors = FROZEN_BEFORE.replace(
        "        return self.backbone(batch)",
        "        batch.requires_grad_(False)\n"
        "        batch.mask.requires_grad = False\n"
        "        return self.backbone(batch)",
    )
    part = FROZEN_BEFORE.replace(
        "        return self", "        self.encoder.requires_grad_(False)\n        return self"
    )
    assert ids(project("", tensors)) == []
    assert ids(project("", part)) == ["ddp-modes-freeze-parameters"]


def test_a_mode_that_the_loop_sets_counts_too() -> None:
    trainer = TRAINER.replace("{options}", "").replace(
        "        loss = model(",
        "        objective._freeze_unneeded(batch.mode)\n        loss = model(",
    )
    files = {"train.py": trainer.replace("from objective import Objective", OBJECTIVE)}
    assert ids(files) == ["ddp-modes-freeze-parameters"]


MODEL = """
from torch import nn
from torch.utils.checkpoint import checkpoint
{imports}

class Joint(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.mmdit = {made}

    def forward(self, text, latent, masks, c):
        if self.training:
            text, latent = checkpoint(
                self.mmdit,
                (text, latent),
                masks,
                c,
                use_reentrant=False
            )
        return text, latent
"""


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        ("self, *, tokens, masks, cond=None", ["checkpoint-keyword-only-call"]),
        ("self, tokens, masks, cond=None", []),
        ("self, *arguments, cond=None", []),
    ],
)
def test_the_signature_of_a_class_of_the_project_decides(
    signature: str, expected: list[str]
) -> None:
    backbone = f"""
from torch import nn

class Backbone(nn.Module):
    def forward({signature}):
        return self.head(cond)
"""
    model = MODEL.format(imports="from backbone import Backbone\n", made="Backbone()")
    assert ids({"model.py": model, "backbone.py": backbone}) == expected


def test_the_reentrant_form_hands_no_keywords_on_so_that_no_names_are_offered() -> None:
    model = MODEL.format(
        imports="from mmdit.mmdit_generalized_pytorch import MMDiT\n", made="MMDiT(depth=2)"
    ).replace("use_reentrant=False", "use_reentrant=True")
    found = [
        f for f in findings({"model.py": model}) if f.check.id == "checkpoint-keyword-only-call"
    ]
    assert [f.edits for f in found] == [()]


SEED_LOSS = """
import torch
import torch.nn.functional as F


def step(self, latent_pred, latent_target, optimizer, eps=1e-8):
    for _ in range(3):
        cosine_sim = F.cosine_similarity(latent_pred, latent_target, dim=-1, eps=eps)
        latent_loss = {loss}
        latent_loss = torch.clamp(latent_loss, min=0.0, max=2.0)
        latent_loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("loss", ["(1.0 - cosine_sim).mean()", "1.0 - cosine_sim.mean()"])
def test_the_proposed_cosine_loss_is_a_hidden_change_of_its_weight(loss: str) -> None:
    (found,) = findings({"train.py": SEED_LOSS.replace("{loss}", loss)})
    assert found.check.id == "loss-weight-changed-by-cosine"
    assert found.edits == ()


def test_a_cosine_loss_as_such_is_nobodys_mistake() -> None:
    plain = SEED_LOSS.replace("{loss}", "1 - cosine_sim.mean()")
    plain = plain.replace("        latent_loss = torch.clamp(latent_loss, min=0.0, max=2.0)\n", "")
    assert ids(plain) == []


STACKS = {
    "nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8), num_layers=12)": True,
    "nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8), 2)": False,
    "nn.Sequential(*[AttentionBlock() for _ in range(3)])": False,
    "nn.Sequential(*[ConvBlock() for _ in range(depth)])": False,
}


@pytest.mark.parametrize("made", STACKS)
def test_deep_stacks_of_attention_are_worth_checkpointing(made: str) -> None:
    code = f"""
from torch import nn

class Model(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.body = {made}

def train(model, optimizer, loader):
    for batch in loader:
        model(batch).backward()
        optimizer.step()
"""
    expected = ["model-no-activation-checkpointing"] if STACKS[made] else []
    assert ids(code) == expected
    assert ids(f"{code}    model.gradient_checkpointing_enable()\n") == []


REENTRANT = """

def again(block, x):
    from torch.utils.checkpoint import checkpoint

    return checkpoint(block, x{option})
"""


@pytest.mark.parametrize(
    ("option", "is_edited"),
    [("", False), (", use_reentrant=True", False), (", use_reentrant=False", True)],
)
def test_static_graph_stays_where_reentrant_checkpoints_may_need_it(
    option: str, is_edited: bool
) -> None:
    files = project(", static_graph=True", OBJECTIVE + REENTRANT.replace("{option}", option))
    (found,) = findings(files)
    assert found.check.id == "ddp-static-graph-with-modes"
    assert bool(found.edits) is is_edited
