"""Generators that a checkpoint leaves out, where the program draws from them."""

import pytest

from tests.doctor.python_code.code_audits import findings

DATA = """
import random
import numpy as np

def masked(tokens):
    if DRAW > 0.5:
        tokens = tokens[::-1]
    return tokens
"""
TRAINING = """
import random
import numpy as np
import torch
from data import masked

def train(model, loader, optimizer, start):
    for step, tokens in enumerate(loader, start):
        model(masked(tokens)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            state = {STATES}
            torch.save({"model": model.state_dict(), "rng": state}, f"random_{step}.pt")
"""
TORCH = '{"torch": torch.get_rng_state()}'


def checked(draw: str, states: str) -> list[str]:
    files = {
        "data.py": DATA.replace("DRAW", draw),
        "train.py": TRAINING.replace("{STATES}", states),
    }
    return [f.detail for f in findings(files) if f.check.id == "resume-random-anew"]


@pytest.mark.parametrize(
    ("draw", "library"),
    [
        ("random.random()", "random"),
        ("np.random.rand()", "NumPy"),
        ("random.uniform(0, 1)", "random"),
    ],
)
def test_a_generator_that_is_drawn_from_is_missing(draw: str, library: str) -> None:
    assert checked(draw, TORCH) == [f"data.py:6 draws from that of {library}"]


@pytest.mark.parametrize(
    ("draw", "states"),
    [
        ("random.random()", '{"torch": torch.get_rng_state(), "python": random.getstate()}'),
        ("np.random.rand()", '{"torch": torch.get_rng_state(), "numpy": np.random.get_state()}'),
        ("tokens.float().mean()", TORCH),
        ("rng.random()", TORCH),  # a generator of its own
        ("random.random()", "{}"),  # nothing says that a resume should be exact
    ],
)
def test_all_generators_are_kept_or_none_is_drawn_from(draw: str, states: str) -> None:
    assert checked(draw, states) == []


STYLES = {
    "entry": "torch.save({'rng': torch.get_rng_state()}, path)",
    "key stored": "state = {}\n    state['rng'] = torch.get_rng_state()\n    save(state)",
    "name": "rng = torch.random.get_rng_state()\n    torch.save({'rng': rng}, path)",
    "file of its own": "torch.save(torch.get_rng_state(), path)",
    "every GPU": "torch.save({'rng': torch.cuda.get_rng_state_all()}, path)",
    "dict": "torch.save(dict(step=1, rng=torch.get_rng_state()), path)",
    "deepspeed": "engine.save_checkpoint(path, client_state={'rng': torch.get_rng_state()})",
    "lightning": "path['rng'] = torch.get_rng_state()",
}
FRAMEWORKS = {"deepspeed": "import deepspeed\n", "lightning": "import lightning\n"}


@pytest.mark.parametrize("style", STYLES)
def test_however_the_state_is_kept(style: str) -> None:
    code = (
        FRAMEWORKS.get(style, "")
        + "import random\nimport torch\n\ndef on_save_checkpoint(self, path, engine):\n    "
        + STYLES[style]
        + "\n\ndef train(model, loader, optimizer):\n    for batch in loader:\n"
        "        if random.random() > 0.5:\n            continue\n"
        "        model(batch).backward()\n        optimizer.step()\n        optimizer.zero_grad()\n"
    )
    assert [f.check.id for f in findings({"train.py": code})].count("resume-random-anew") == 1


def test_a_state_that_is_put_back_at_once_is_no_checkpoint() -> None:
    code = TRAINING.replace(
        "            state = {STATES}\n",
        "            state = torch.get_rng_state()\n            torch.set_rng_state(state)\n",
    )
    files = {"data.py": DATA.replace("DRAW", "random.random()"), "train.py": code}
    assert "resume-random-anew" not in [f.check.id for f in findings(files)]
