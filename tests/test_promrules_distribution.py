"""The monitor and the rules' distribution fit together."""

import tomllib
from pathlib import Path

import ldlm_promrules.errors
from ldlm_monitor import __version__
from ldlm_monitor.base import errors

ROOT = Path(__file__).resolve().parents[1]


def test_both_have_one_version_and_ask_for_the_same_packages() -> None:
    assert ldlm_promrules.__version__ == __version__
    projects = [
        tomllib.loads((ROOT / path).read_text("utf-8"))["project"]
        for path in ("promrules/pyproject.toml", "pyproject.toml")
    ]
    assert set(projects[0]["dependencies"]) <= set(projects[1]["dependencies"])


def test_errors_are_the_same_objects_under_both_names() -> None:
    assert errors.RuleError is ldlm_promrules.errors.RuleError
    assert errors.UnsupportedError is ldlm_promrules.errors.UnsupportedError
