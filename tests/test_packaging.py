"""The wheel holds everything that an installed monitor needs."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.live
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--quiet", "--wheel-dir", str(folder), str(ROOT)], check=True)
    (built,) = folder.glob("*.whl")
    return built


def test_rules_dashboards_and_definitions_are_files_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.getinfo(name).external_attr >> 16 for name in archive.namelist()}
    checkout = ROOT / "monitor/ldlm_monitor"
    wanted = [
        str(Path("ldlm_monitor") / path.relative_to(checkout))
        for folder in ("alerts/packaged", "serve/dashboards", "parse/data")
        for path in sorted((checkout / folder).rglob("*"))
        if path.is_file() and "generate" not in path.parts and path.suffix != ".pyc"
    ]
    assert "ldlm_monitor/alerts/packaged/default.yml" in wanted
    others = {
        "ldlm_monitor/tui/app.tcss",
        "ldlm_monitor/playback/demo.jsonl.gz",
        "ldlm_monitor/report/advice.yml",
        "ldlm_monitor/report/page.css",
        "ldlm_monitor/report/page.js",
        "ldlm_monitor/analysis/chart.css",
    }
    assert {*wanted, *others} <= set(held)
    links = [name for name in wanted if held[name] & 0o170000 == 0o120000]
    assert links == []


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist"]
    subprocess.run([*command, "--directory", str(folder)], cwd=ROOT, check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (inside,) = (path for path in folder.iterdir() if path.is_dir())
    return inside


def test_a_wheel_of_the_source_distribution_is_the_same(
    wheel: Path, unpacked: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*command, "--directory", str(tmp_path)], cwd=unpacked, check=True)
    (again,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert sorted(first.namelist()) == sorted(second.namelist())


@pytest.mark.parametrize("name", ["rules/default.yml", "dashboards/ldlm-fleet.json", "setup.sh"])
def test_the_source_distribution_holds_what_a_checkout_needs(unpacked: Path, name: str) -> None:
    assert (unpacked / name).is_file()
    assert (unpacked / "monitor/ldlm_monitor/alerts/packaged/default.yml").is_file()


def test_the_package_page_leads_into_the_repository(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(metadata).decode()
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert len(targets) > 10
    assert all(target.startswith(("https://", "http://", "#")) for target in targets)
    assert "Project-URL: Source, https://" in text


def test_the_trainer_is_in_the_wheel_and_needs_torch_by_its_extra_only(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        needs = [
            line.removeprefix("Requires-Dist: ")
            for line in archive.read(metadata).decode().splitlines()
            if line.startswith("Requires-Dist: ")
        ]
    package = ROOT / "trainer/ldlm_trainer"
    assert {f"ldlm_trainer/{path.name}" for path in package.glob("*.py")} <= names
    torch = [need for need in needs if need.startswith(("torch", "numpy"))]
    assert torch
    assert all("extra == 'trainer'" in need.replace('"', "'") for need in torch)


def test_the_parser_of_shell_scripts_comes_with_the_doctor_only(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(metadata).decode()
    parsers = [line for line in text.splitlines() if line.startswith("Requires-Dist: tree-sitter")]
    extras = {line.partition("extra == ")[2].strip("'\"") for line in parsers}
    assert extras == {"doctor", "all"}


def locked(name: str) -> dict[str, set[str]]:
    """The versions of each package in a lock file. Every one has a hash, and none an address."""
    versions: dict[str, set[str]] = {}
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    for entry in text.replace("\\\n", "").splitlines():
        requirement, *hashes = entry.split("--hash=")
        assert hashes, entry
        assert all(part.startswith("sha256:") for part in hashes), entry
        found = Requirement(requirement)
        assert found.url is None
        versions.setdefault(found.name, set()).add(str(found.specifier))
    return versions


def test_the_lock_is_whole_and_its_parts_agree() -> None:
    run, dev, frameworks = map(locked, ("run", "dev", "frameworks"))
    assert run == {name: dev[name] for name in run}
    assert all(dev.get(name, versions) == versions for name, versions in frameworks.items())


@pytest.mark.parametrize("name", ["run", "dev", "frameworks"])
def test_the_lock_holds_what_the_project_asks_for(name: str) -> None:
    """After a change of the dependencies: sh requirements/lock.sh."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras, groups = project["project"]["optional-dependencies"], project["dependency-groups"]
    wanted = {"frameworks": list(groups["frameworks"])}
    (everything,) = map(Requirement, extras["all"])
    wanted["run"] = [*project["project"]["dependencies"], *groups["build"]]
    wanted["run"] += [need for extra in everything.extras for need in extras[extra]]
    wanted["dev"] = [*wanted["run"], *groups["docs"], *groups["test"]]
    versions = locked(name)
    for need in map(Requirement, wanted[name]):
        found = versions[canonicalize_name(need.name)]
        assert all(need.specifier.contains(each.removeprefix("==")) for each in found), need


@pytest.mark.parametrize(("folder", "how"), [("a b", "--editable"), ("ü b", "--force-reinstall")])
def test_setup_copies_the_package_where_a_path_could_keep_python_from_starting(
    tmp_path: Path, folder: str, how: str
) -> None:
    """`pip` and the command are scripts that print their arguments: nothing is installed."""
    checkout = tmp_path / folder
    (checkout / "requirements").mkdir(parents=True)
    (checkout / ".venv/bin").mkdir(parents=True)
    shutil.copy(ROOT / "setup.sh", checkout)
    for place in ("requirements", ".venv"):
        shutil.copy(ROOT / "requirements/run.txt", checkout / place)
    for name in ("pip", "ldlm-monitor"):
        (checkout / ".venv/bin" / name).write_text('#!/bin/sh\necho "$@"\n')
        (checkout / ".venv/bin" / name).chmod(0o755)
    done = subprocess.run(
        ["sh", "setup.sh"], cwd=checkout, capture_output=True, text=True, check=True,
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, "LC_ALL": "C"},
    )  # fmt: skip
    assert f"--no-build-isolation {how} ." in done.stdout


def test_an_installed_wheel_finds_its_rules(wheel: Path, tmp_path: Path) -> None:
    """In a fresh environment that borrows only the dependencies."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    environment = os.environ | {"PYTHONPATH": sysconfig.get_path("purelib")}
    where = subprocess.run(
        [python, "-c", "from ldlm_monitor.core.packaged_rules import *; print(*packaged_rules())"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(where.stdout.strip()).is_relative_to(venv)
    done = subprocess.run(
        [venv / "bin/ldlm-monitor", "rules", "check"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "all fine" in done.stdout
    for words in (["dashboards", "export", "boards"], ["init"], ["formats", "list"]):
        command = [venv / "bin/ldlm-monitor", *words]
        subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, check=True)
    assert (tmp_path / "boards/ldlm-fleet.json").is_file()
    assert (tmp_path / "ldlm-monitor.toml").is_file()
