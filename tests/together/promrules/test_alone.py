"""The wheel alone, in an environment of its dependencies: no other part of the project is there."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOREIGN = ("ldlm-monitor", "ldlm-callback", "ldlm-doctor", "ldlm-trainer", "textual", "msgspec")


@pytest.mark.long
@pytest.mark.live
def test_its_tests_pass_beside_its_dependencies(tmp_path: Path) -> None:
    """pip takes the dependencies from the wheel's own list, and from an index."""
    python = tmp_path / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    built = ["--wheel-dir", str(tmp_path), str(ROOT / "promrules")]
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", *built], check=True)
    (wheel,) = tmp_path.glob("ldlm_promrules-*.whl")
    subprocess.run([*pip, "install", "--quiet", str(wheel), "pytest", "hypothesis"], check=True)
    subprocess.run([*pip, "check"], check=True, stdout=subprocess.DEVNULL)
    listed = subprocess.run(
        [*pip, "list", "--format=freeze"], check=True, capture_output=True, text=True
    ).stdout
    names = {line.partition("==")[0].lower() for line in listed.splitlines()}
    assert "ldlm-promrules" in names
    assert not names & set(FOREIGN)
    command = [str(tmp_path / "venv/bin/promrules"), "test", str(ROOT / "rules/recording.test.yml")]
    subprocess.run(command, check=True)
    folder = str(ROOT / "tests/promrules")
    settings = ["-c", str(ROOT / "promrules/pyproject.toml"), "--confcutdir", folder]
    tests = subprocess.run(
        [str(python), "-m", "pytest", *settings, "-p", "no:cacheprovider", "-q", folder],
        cwd=tmp_path, check=False, capture_output=True, text=True,
    )  # fmt: skip
    print(tests.stdout[-2000:])
    assert tests.returncode == 0, tests.stdout + tests.stderr
