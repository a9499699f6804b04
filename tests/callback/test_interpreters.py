"""The callback's tests on each Python that it is for, in an environment without the monitor."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]
SETTINGS = "[pytest]\nfilterwarnings = error\nmarkers =\n  long: left out\n  live: processes\n"
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))


def interpreter(version: str) -> str | None:
    """The first of this version on PATH, or of pyenv, that starts."""
    on_path = shutil.which(f"python{version}")
    for found in (on_path, *sorted(PYENV.glob(f"versions/{version}.*/bin/python"))):
        if found is None:
            continue
        started = subprocess.run([found, "-c", ""], capture_output=True, check=False)
        if not started.returncode:
            return str(found)
    return None


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_its_tests_pass_with_what_the_wheel_installs(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"this machine has no Python {version}")
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
    pip = [tmp_path / "venv/bin/python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "pytest", "hypothesis", ROOT / "callback"], check=True)
    shutil.copytree(ROOT / "tests/callback", tmp_path / "tests")
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    command = [tmp_path / "venv/bin/python", "-m", "pytest", "-q", "-rs", "-m", "not long", "tests"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout[-3000:]
    assert " passed" in done.stdout
