"""The wheels hold everything that an installed monitor needs, each what is its own."""

import email
import fcntl
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.live
ROOT = Path(__file__).resolve().parents[3]


MEMBERS = {
    path.parent.name: tomllib.loads(path.read_text(encoding="utf-8"))
    for path in sorted(ROOT.glob("*/pyproject.toml"))
}
"""The projects beside ldlm-monitor, by their folder."""


Made = Callable[[str, Callable[[Path], None]], Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A folder by its name, which is filled once for all processes of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder(name: str, fill: Callable[[Path], None]) -> Path:
        whole, part = base / name, base / f"{name}.part"
        with (base / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not whole.exists():
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir()
                fill(part)
                part.rename(whole)
        return whole

    return folder


def build_all(checkout: Path, folder: Path) -> None:
    environment = os.environ | {"PYTHON": sys.executable}
    subprocess.run(["sh", "deploy/wheels.sh", folder], cwd=checkout, env=environment, check=True)


@pytest.fixture(scope="module")
def wheels(made: Made) -> Path:
    """The folder of a release's files."""
    return made("release", partial(build_all, ROOT))


def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        return email.message_from_bytes(archive.read(name))


def needs(wheel: Path) -> list[Requirement]:
    return [*map(Requirement, metadata(wheel).get_all("Requires-Dist", []))]


def pip_into(venv: Path, *words: object) -> None:
    """`pip install` into an environment, made if there is none yet; the index is not asked."""
    python = venv / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index"]
    subprocess.run([*map(str, (*command, *words))], check=True)


@pytest.fixture(scope="module")
def wheel(made: Made) -> Path:
    def build(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
        subprocess.run([*command, "--quiet", "--wheel-dir", str(folder), str(ROOT)], check=True)

    (built,) = made("wheel", build).glob("*.whl")
    return built


def test_rules_dashboards_and_definitions_are_files_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.getinfo(name).external_attr >> 16 for name in archive.namelist()}
    checkout = ROOT / "monitor/ldlm_monitor"
    wanted = [
        str(Path("ldlm_monitor") / path.relative_to(checkout))
        for folder in ("judge/core/packaged", "service/serve/dashboards", "logs/parse/data")
        for path in sorted((checkout / folder).rglob("*"))
        if path.is_file() and "generate" not in path.parts and path.suffix != ".pyc"
    ]
    assert "ldlm_monitor/judge/core/packaged/default.yml" in wanted
    others = {
        "ldlm_monitor/screen/app.tcss",
        "ldlm_monitor/finished/playback/demo.jsonl.gz",
        "ldlm_monitor/finished/report/advice.yml",
        "ldlm_monitor/finished/report/page.css",
        "ldlm_monitor/finished/report/page.js",
        "ldlm_monitor/finished/chart.css",
    }
    assert {*wanted, *others} <= set(held)
    links = [name for name in wanted if held[name] & 0o170000 == 0o120000]
    assert links == []


@pytest.fixture(scope="module")
def unpacked(made: Made) -> Path:
    """The folder of the source distribution."""

    def build(folder: Path) -> None:
        command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist"]
        subprocess.run([*command, "--directory", str(folder)], cwd=ROOT, check=True)
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")

    (inside,) = (path for path in made("sdist", build).iterdir() if path.is_dir())
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
    assert (unpacked / "monitor/ldlm_monitor/judge/core/packaged/default.yml").is_file()


def test_the_package_page_leads_into_the_repository(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(metadata).decode()
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert len(targets) > 10
    assert all(target.startswith(("https://", "http://", "#")) for target in targets)
    assert "Project-URL: Source, https://" in text


def test_all_have_one_version_and_in_a_release_require_each_other_by_it(wheels: Path) -> None:
    from ldlm_monitor import __version__

    built = {path.name: metadata(path) for path in wheels.glob("*.whl")}
    assert {each["Version"] for each in built.values()} == {__version__}
    assert {each["Name"] for each in built.values()} == {
        "ldlm-monitor",
        *(f"ldlm-{member}" for member in MEMBERS),
    }
    between = [
        (need.name, str(need.specifier))
        for path in wheels.glob("*.whl")
        for need in needs(path)
        if need.name.removeprefix("ldlm-") in MEMBERS
    ]
    assert {name for name, _ in between} >= {"ldlm-callback", "ldlm-doctor", "ldlm-trainer"}
    assert {version for _, version in between} == {f"=={__version__}"}
    assert not any(need.url for path in wheels.glob("*.whl") for need in needs(path))


def test_in_a_checkout_a_member_is_required_by_its_folder(wheel: Path) -> None:
    found = {need.name: need.url for need in needs(wheel) if need.url}
    members = {name.removeprefix("ldlm-") for name in found}
    assert found == {f"ldlm-{member}": (ROOT / member).as_uri() for member in members}
    assert members >= {"callback", "doctor", "trainer"}


def test_each_member_has_the_licence() -> None:
    for member in MEMBERS:
        assert (ROOT / member / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_monitors_wheel_holds_no_member(wheels: Path) -> None:
    (built,) = wheels.glob("ldlm_monitor-*-any.whl")
    with zipfile.ZipFile(built) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"ldlm_monitor"}


LIBRARY = "ldlm_monitor/base/libldlm.native"


def test_a_release_has_a_wheel_for_any_machine_and_one_with_the_compiled_part(wheels: Path) -> None:
    assert shutil.which("c++"), "a release is made where a compiler is"
    built = {path.stem.split("-", 2)[2]: path for path in wheels.glob("ldlm_monitor-*.whl")}
    pure, compiled = sorted(built, key=lambda tags: not tags.endswith("-any"))
    assert pure == "py3-none-any"
    assert re.fullmatch(r"py3-none-manylinux_\d+_\d+_\w+", compiled)
    files = []
    for tags in (pure, compiled):
        with zipfile.ZipFile(built[tags]) as archive:
            files.append({name for name in archive.namelist() if ".dist-info/" not in name})
    assert files[1] - files[0] == {LIBRARY}
    assert files[0] < files[1]


@pytest.mark.parametrize(("set_to", "said"), [("1", "with"), ("0", "without")])
def test_the_installed_wheel_says_whether_the_compiled_part_is_in_use(
    wheels: Path, tmp_path: Path, set_to: str, said: str
) -> None:
    pip_into(tmp_path / "venv", "--no-deps", "--find-links", wheels, "ldlm-monitor")
    (package,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    for name in ("hatch_build.py", "native/newer.h"):  # another project's, not its sources
        (package.parent / name).parent.mkdir(exist_ok=True)
        (package.parent / name).touch()
    done = subprocess.run(
        [tmp_path / "venv/bin/ldlm-monitor", "--version"],
        env=os.environ | {"LDLM_NATIVE": set_to},
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.endswith(f", {said} the compiled part\n")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder with what compiles the compiled part."""
    for name in ("native", "hatch_build.py"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    (tmp_path / "monitor" / LIBRARY).parent.mkdir(parents=True)
    return tmp_path


def compile_in(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "hatch_build.py"], cwd=folder, env=os.environ | environment,
        capture_output=True, text=True, check=True,
    )  # fmt: skip


def test_a_change_of_a_source_compiles_the_compiled_part_anew(sources: Path) -> None:
    library = sources / "monitor" / LIBRARY
    compile_in(sources)
    first = library.stat().st_ino
    compile_in(sources)
    assert library.stat().st_ino == first
    newer = library.stat().st_mtime + 1
    os.utime(sources / "native/rows.cpp", (newer, newer))
    compile_in(sources)
    assert library.stat().st_ino != first


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("no-such-compiler -O1", "no C++ compiler no-such-compiler, as CXX has it"),
        ("", "no C++ compiler (c++ or g++; CXX names another)"),
        ("'c++", "CXX is no command (No closing quotation): 'c++"),
        ("env c++ -DOURS", ""),
    ],
)
def test_cxx_is_a_command_with_its_flags(sources: Path, named: str, said: str) -> None:
    for source in (sources / "native").glob("*.cpp"):
        source.write_text("#ifndef OURS\n#error without the flag\n#endif\n" + source.read_text())
    environment = {"CXX": named} if named else {"CXX": "", "PATH": ""}
    stated = compile_in(sources, **environment).stderr
    assert stated == (said and f"ldlm-monitor: without the compiled part: {said}\n")
    assert (sources / "monitor" / LIBRARY).exists() == (not said)


def test_missing_sources_cost_a_line(sources: Path) -> None:
    shutil.rmtree(sources / "native")
    said = f"ldlm-monitor: without the compiled part: no sources in {sources / 'native'}\n"
    assert compile_in(sources).stderr == said


@pytest.mark.parametrize(("set_to", "compiled"), [("1", True), ("0", False)])
def test_a_wheel_of_a_checkout_ships_no_library_that_lies_in_it(
    unpacked: Path, tmp_path: Path, set_to: str, compiled: bool
) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(unpacked, checkout, symlinks=True)
    stale = checkout / "monitor" / LIBRARY
    stale.write_bytes(b"of older sources")
    os.utime(stale, (2**31, 2**31))
    for ignored in checkout.glob(".gitignore"):
        ignored.unlink()
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(tmp_path / "out")]
    environment = os.environ | {"LDLM_NATIVE": set_to}
    subprocess.run(command, cwd=checkout, env=environment, check=True, capture_output=True)
    (built,), (packed,) = ((tmp_path / "out").glob(each) for each in ("*.whl", "*.tar.gz"))
    assert built.name.endswith("-none-any.whl") == (not compiled)
    with zipfile.ZipFile(built) as archive:
        libraries = [archive.read(each) for each in archive.namelist() if "libldlm" in each]
    assert [each[1:4] for each in libraries] == [b"ELF"] * compiled
    with tarfile.open(packed) as archive:
        assert not [each for each in archive.getnames() if "libldlm" in each]
    assert stale.read_bytes() == b"of older sources"


def test_a_compiler_that_fails_costs_a_line_and_not_the_installation(sources: Path) -> None:
    (sources / "native/rows.cpp").write_text("#error of our own\n")
    said = compile_in(sources).stderr
    assert re.fullmatch(
        r"ldlm-monitor: without the compiled part: \S+ failed: .* of our own\n", said
    )
    assert not (sources / "monitor" / LIBRARY).exists()


def test_where_it_is_not_wanted_nothing_is_compiled(sources: Path) -> None:
    assert compile_in(sources, LDLM_NATIVE="0").stderr == ""
    assert not (sources / "monitor" / LIBRARY).exists()


def test_the_callback_alone_is_one_small_package(wheels: Path, tmp_path: Path) -> None:
    (built,) = wheels.glob("ldlm_callback-*.whl")
    assert built.stat().st_size < 100_000
    assert all(need.marker and "extra" in str(need.marker) for need in needs(built))
    pip_into(tmp_path / "venv", "--find-links", wheels, "ldlm-callback")
    pip = [sys.executable, "-m", "pip", "--python", str(tmp_path / "venv/bin/python")]
    listed = subprocess.run([*pip, "list"], capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in listed.splitlines()[2:]] == ["ldlm-callback"]
    subprocess.run([*pip, "check"], check=True)
    readme = (ROOT / "callback/README.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    command = [tmp_path / "venv/bin/python", "-W", "error", "-c", program]
    subprocess.run(command, cwd=tmp_path, check=True)
    rows = (tmp_path / "saved/run_a/health_rank0.jsonl").read_text().splitlines()
    assert ['"type":"step"' in row for row in rows] == [False, True, True, True, False]


@pytest.mark.parametrize("member", MEMBERS)
def test_a_members_wheel_has_the_members_modules(wheels: Path, member: str) -> None:
    (built,) = wheels.glob(f"ldlm_{member}-*.whl")
    with zipfile.ZipFile(built) as archive:
        names = set(archive.namelist())
    folder = ROOT / member / f"ldlm_{member}"
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    # ldlm_doctor.py says why two have another name there.
    top = folder.name if f"{folder.name}.py" not in names else f"_{folder.name}"
    assert {f"{top}/{path.relative_to(folder)}" for path in files} <= names
    assert f"{top}/py.typed" in names


def test_torch_and_parsers_of_shell_come_with_their_members_only(wheels: Path) -> None:
    (monitor,) = wheels.glob("ldlm_monitor-*-any.whl")
    found = {need.name: str(need.marker).replace('"', "'") for need in needs(monitor)}
    assert not {"torch", "numpy", "tree-sitter", "tree-sitter-bash"} & set(found)
    assert found["ldlm-trainer"].startswith("extra == ")


OLD = "a00739f5"
"""The last commit whose wheel of ldlm-monitor held doctor and trainer."""


def git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout


@pytest.fixture(scope="module")
def upgrade(made: Made) -> tuple[Path, Path]:
    """The wheel of the old commit, and the folder of a later release of this tree."""
    if subprocess.run(["git", "cat-file", "-e", OLD], cwd=ROOT, check=False).returncode:
        pytest.skip(f"the repository has no commit {OLD}")
    folder = made("upgrade", build_upgrade)
    (old,) = folder.glob("*.whl")
    return old, folder / "release"


def build_upgrade(folder: Path) -> None:
    (folder / "old").mkdir()
    subprocess.run(["tar", "-x", "-C", folder / "old"], input=git("archive", OLD), check=True)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*build, "--directory", folder], cwd=folder / "old", check=True)
    names = git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    kept = b"\0".join(name for name in names.split(b"\0") if os.path.lexists(ROOT / name.decode()))
    tar = ["tar", "-c", "--null", "--files-from=-"]
    packed = subprocess.run(tar, cwd=ROOT, input=kept, capture_output=True, check=True).stdout
    (folder / "new").mkdir()
    subprocess.run(["tar", "-x", "-C", folder / "new"], input=packed, check=True)
    version = [sys.executable, "deploy/new_version.py", "0.9.0", "2030-01-01"]
    subprocess.run(version, cwd=folder / "new", check=True)
    build_all(folder / "new", folder / "release")


@pytest.mark.long  # half a minute of CPU to build and install both releases
@pytest.mark.parametrize("first", ["members", "monitor"])
def test_an_upgrade_from_the_wheel_that_held_all_leaves_every_file_in_place(
    upgrade: tuple[Path, Path], first: str, tmp_path: Path
) -> None:
    """pip installs the members first; then it removes every file of the old wheel."""
    old, release = upgrade
    venv = tmp_path / "venv"
    pip_into(venv, "--no-deps", old)
    orders = [["ldlm-callback", "ldlm-promrules", "ldlm-doctor", "ldlm-trainer"], ["ldlm-monitor"]]
    for names in orders if first == "members" else reversed(orders):
        pip_into(venv, "--no-deps", "--upgrade", "--find-links", release, *names)
    python = venv / "bin/python"
    program = (
        "import importlib.metadata as m, importlib.util, sys\n"
        "for name in sys.argv[1:]:\n"
        "    found = m.distribution(name)\n"
        "    assert found.version == '0.9.0', (name, found.version)\n"
        "    lost = [str(file) for file in found.files if not file.locate().exists()]\n"
        "    assert not lost, lost\n"
        "for name in ('ldlm_callback.health', 'ldlm_doctor.model', 'ldlm_trainer.config'):\n"
        "    print(importlib.util.find_spec(name).origin)\n"
    )
    done = subprocess.run(
        [python, "-c", program, *(name for names in orders for name in names)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    assert all(Path(name).is_relative_to(venv) for name in done.stdout.split())
    environment = os.environ | {"PYTHONPATH": sysconfig.get_path("purelib")}
    (tmp_path / "train.sh").write_text("#!/bin/sh\ntorchrun train.py | tee train.log\n")
    done = subprocess.run(
        [venv / "bin/ldlm-monitor", "doctor", "train.sh"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "exit-code-hidden" in done.stdout, done.stderr
    if find_spec("torch"):
        command = [python, "-m", "ldlm_trainer", "--help"]
        subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, check=True)


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


def third_parties(needs: list[str]) -> list[str]:
    """What is required, of a member what it and its extras require."""
    found = []
    for need in map(Requirement, needs):
        member = MEMBERS.get(need.name.removeprefix("ldlm-"))
        if member is None:
            found.append(str(need))
            continue
        project = member["project"]
        extras = project.get("optional-dependencies", {})
        found += third_parties(
            [*project["dependencies"], *(n for e in need.extras for n in extras[e])]
        )
    return found


@pytest.mark.parametrize("name", ["run", "dev", "frameworks"])
def test_the_lock_holds_what_the_project_asks_for(name: str) -> None:
    """After a change of the dependencies: sh requirements/lock.sh."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    project = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    extras = project["extras"]
    wanted = {"frameworks": list(groups["frameworks"])}
    (everything,) = map(Requirement, extras["all"])
    own = [
        *project["dependencies"],
        *(need for extra in everything.extras for need in extras[extra]),
    ]
    wanted["run"] = [*groups["build"], *third_parties(own)]
    wanted["dev"] = [*wanted["run"], *groups["docs"], *groups["test"]]
    versions = locked(name)
    for need in map(Requirement, wanted[name]):
        found = versions[canonicalize_name(need.name)]
        assert all(need.specifier.contains(each.removeprefix("==")) for each in found), need


@pytest.mark.parametrize(
    ("folder", "how"),
    [
        ("a b", "--editable . --editable ./callback --editable ./doctor"),
        ("ü b", "--force-reinstall . ./callback ./doctor"),
    ],
)
def test_setup_copies_the_package_where_a_path_could_keep_python_from_starting(
    tmp_path: Path, folder: str, how: str
) -> None:
    """All commands are scripts that print their arguments: nothing is installed."""
    checkout = tmp_path / folder
    (checkout / "requirements").mkdir(parents=True)
    (checkout / ".venv/bin").mkdir(parents=True)
    shutil.copy(ROOT / "setup.sh", checkout)
    for place in ("requirements", ".venv"):
        shutil.copy(ROOT / "requirements/run.txt", checkout / place)
    for name in ("callback", "doctor", "trainer"):
        (checkout / name).mkdir()
        shutil.copy(ROOT / name / "pyproject.toml", checkout / name)
    for name in ("pip", "python", "ldlm-monitor"):
        (checkout / ".venv/bin" / name).write_text('#!/bin/sh\necho "$@"\n')
        (checkout / ".venv/bin" / name).chmod(0o755)
    done = subprocess.run(
        ["sh", "setup.sh"], cwd=checkout, capture_output=True, text=True, check=True,
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, "LC_ALL": "C"},
    )  # fmt: skip
    assert f"--no-build-isolation {how}\n" in done.stdout


def test_an_installed_wheel_finds_its_rules(wheels: Path, tmp_path: Path) -> None:
    """In a fresh environment that borrows only the dependencies."""
    venv = tmp_path / "venv"
    python = venv / "bin/python"
    names = ("ldlm-monitor", *(f"ldlm-{member}" for member in MEMBERS))
    pip_into(venv, "--no-deps", "--find-links", wheels, *names)
    environment = os.environ | {"PYTHONPATH": sysconfig.get_path("purelib")}
    program = "from ldlm_monitor.judge.core.packaged_rules import *; print(*packaged_rules())"
    where = subprocess.run(
        [python, "-c", program],
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
