"""The tests of a house pass beside its requirements alone: a newcomer needs to install no more."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.together.houses import HOUSES, ROOT, RUNNER, House, with_dependencies

pytestmark = [pytest.mark.long, pytest.mark.live]
LOCKS = ("run", "dev", "frameworks")
LIMIT_SECONDS = 3600


def locked() -> dict[str, str]:
    """By canonical name, what the locks say of a distribution: version, platforms and hashes."""
    found: dict[str, str] = {}
    for name in LOCKS:
        text = (ROOT / f"requirements/{name}.txt").read_text("utf-8")
        for entry in re.findall(r"^[A-Za-z0-9].*(?:\n .*)*", text, re.MULTILINE):
            found.setdefault(canonicalize_name(re.split("[=; ]", entry)[0]), entry)
    return found


def installed_with(house: House) -> Iterator[str]:
    """What an environment of the house gets: the lock's entries, and torch as it is here."""
    lock = locked()
    wanted = [*house.requirements(), *house.tests, *RUNNER]
    for name, version in sorted(with_dependencies(wanted).items()):
        yield lock.get(name, f"{name}=={version.partition('+')[0]}")


def environment(house: House, folder: Path) -> Path:
    """Makes a virtual environment of what the house needs; ours by its folders."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    entries = list(installed_with(house))
    for hashed in (True, False):
        lines = [entry for entry in entries if ("--hash" in entry) is hashed]
        if lines:
            wanted = folder / "requirements.txt"
            wanted.write_text("\n".join(lines) + "\n")
            subprocess.run([*pip, "--requirement", str(wanted)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    sources = {str(ROOT / each.path) for each in house.needed()}
    (packages / "houses.pth").write_text("\n".join(sorted(sources)) + "\n")
    return python


@pytest.mark.parametrize("house", HOUSES.values(), ids=HOUSES)
def test_the_tests_of_a_house_pass_beside_its_requirements(
    house: House, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "torch" in house.packages:
        pytest.importorskip("torch")
    python = environment(house, tmp_path / "venv")
    began = time.monotonic()
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/{house.name}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    counts = done.stdout.rstrip().rpartition("\n")[2]
    with capsys.disabled():
        print(f"\n{house.name}: {counts} ({time.monotonic() - began:.0f} s)")
    assert not done.returncode, done.stdout[-10_000:] + done.stderr[-2000:]
