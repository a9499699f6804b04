"""Generators that a checkpoint leaves out, where the program draws from them."""

import pytest
from code_audits import findings

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
