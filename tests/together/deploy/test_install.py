"""Every way to install that docs/install.md names, from the index that this machine has."""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[3]
Say = Callable[..., str]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with uv, pipx and pre-commit."""
    folder = tmp_path_factory.mktemp("tools")
    venv.create(folder, with_pip=True)
    pip = [folder / "bin/pip", "install", "--quiet", "uv", "pipx", "pre-commit"]
    subprocess.run(pip, check=True)
    return folder / "bin"


@pytest.fixture
def say(tools: Path, tmp_path: Path) -> Say:
    """Runs a command in a folder of its own; what it printed."""
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PRE_COMMIT_HOME": str(tmp_path / "hooks"),
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"),
        "UV_TOOL_DIR": str(tmp_path / "uv"),
        "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
    }

    def run(*words: object) -> str:
        done = subprocess.run(
            [*map(str, words)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert not done.returncode, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    (tmp_path / "train.sh").write_text("#!/bin/sh\ntorchrun train.py | tee train.log\n")
    return run


@pytest.mark.parametrize("extra", ["", "[all]"])
@pytest.mark.parametrize(
    "command",
    [("uv", "tool", "install", "--python", sys.executable), ("pipx", "install")],
    ids=lambda words: words[0],
)
def test_a_checkout_is_a_tool(say: Say, tmp_path: Path, command: tuple, extra: str) -> None:
    say(*command, f"{ROOT}{extra}")
    assert say(tmp_path / "bin/ldlm-monitor", "--version").startswith("ldlm-monitor ")
    if extra:
        assert "exit-code-hidden" in say(tmp_path / "bin/ldlm-monitor", "doctor", "train.sh")


@pytest.mark.parametrize("extra", ["", "[all]"])
def test_pip_installs_a_checkout(say: Say, tmp_path: Path, extra: str) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    say(tmp_path / "venv/bin/pip", "install", f"{ROOT}{extra}")
    say(tmp_path / "venv/bin/pip", "check")
    assert say(tmp_path / "venv/bin/ldlm-monitor", "--version").startswith("ldlm-monitor ")


def test_the_hook_of_pre_commit_finds_what_the_doctor_finds(say: Say, tmp_path: Path) -> None:
    say("git", "init", "--quiet", ".")
    say("git", "add", "train.sh")
    found = say("pre-commit", "try-repo", ROOT, "ldlm-doctor", "-v", "--files", "train.sh")
    assert "exit-code-hidden" in found


@pytest.mark.parametrize("folder", ["a b", "ü b"])
def test_setup_makes_an_environment_that_starts_whatever_the_locale(
    say: Say, tmp_path: Path, folder: str
) -> None:
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    for name in names:
        if name and (ROOT / name).exists() and not name.startswith("tests/"):
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / folder / name, follow_symlinks=False)
    say("env", "LC_ALL=C", f"PYTHON={sys.executable}", "sh", tmp_path / folder / "setup.sh")
    python = tmp_path / folder / ".venv/bin/python"
    say(python, "-m", "pip", "check")
    imported = "import ldlm_callback, ldlm_doctor.audit, ldlm_monitor.callback"
    say("env", "LC_ALL=C", python, "-c", imported)


def test_the_callback_fits_beside_old_pins(say: Say, tmp_path: Path) -> None:
    """Those of trainers that were frozen in 2023; ldlm-monitor needs newer ones."""
    venv.create(tmp_path / "venv", with_pip=True)
    pins = ("pydantic==1.10.26", "typing-extensions==4.5.0", "rich==13.9.4")
    say(tmp_path / "venv/bin/pip", "install", *pins)
    before = say(tmp_path / "venv/bin/pip", "freeze").splitlines()
    say(tmp_path / "venv/bin/pip", "install", ROOT / "callback")
    say(tmp_path / "venv/bin/pip", "check")
    after = say(tmp_path / "venv/bin/pip", "freeze").splitlines()
    assert [line.partition(" ")[0] for line in after if line not in before] == ["ldlm-callback"]
