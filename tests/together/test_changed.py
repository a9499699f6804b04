"""`tests/changed.py` runs what a change needs: tried in repositories with a file of each house."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.changed import OF_JUDGE, with_importers
from tests.together.houses import HOUSES, ROOT, house_of

FIXED = {
    *("tests/together/docs", "tests/together/monitor", "tests/together/test_contract.py"),
    "tests/together/live/test_main_job.py",
}
GIT = ("git", "-c", "user.name=ada", "-c", "user.email=ada@example.org")


class Repository:
    """A checkout on a branch; its `tests/run.sh` prints what it is given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "--quiet", "--initial-branch=main")
        for name in ("tests/changed.py", "tests/together/houses.toml"):
            self.write(name, (ROOT / name).read_text("utf-8"))
        self.write("tests/run.sh", "printf 'given %s\\n' \"$@\"\n")
        for name, house in HOUSES.items():
            self.write(f"{house.path}/{house.folder}/__init__.py")
            self.write(f"tests/{name}/test_it.py")
        for room in ("callback", "deploy", "docs", "live", "monitor", "rules", "supervise"):
            self.write(f"tests/together/{room}/test_it.py")
        for name in (
            "tests/together/test_contract.py",
            "docs/run.md",
            "rules/default.yml",
            "setup.sh",
        ):
            self.write(name)
        self.write("tests/screen/test_pages.py", "PAGE = 'docs/run.md'\n")
        link = folder / "monitor/ldlm_monitor/judge/packaged"
        link.symlink_to("../../../rules")
        self.commit()
        self.git("switch", "--quiet", "--create", "change")

    def git(self, *words: str) -> None:
        subprocess.run([*GIT, *words], cwd=self.folder, check=True, capture_output=True)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "x")

    def write(self, name: str, text: str = "") -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def change(self, house: str) -> None:
        """Write to a module of a house."""
        self.write(f"{HOUSES[house].path}/{HOUSES[house].folder}/__init__.py", "x = 1\n")

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "tests/changed.py", *words]
        return subprocess.run(command, cwd=self.folder, check=False, capture_output=True, text=True)

    def run(self, *words: str) -> set[str]:
        """The tests that are run; none: everything."""
        done = self.ask(*words)
        assert not done.returncode, done.stderr
        lines = [line for line in done.stdout.splitlines() if line.startswith("given ")]
        given = [line.removeprefix("given ") for line in lines if line != "given "]
        assert lines, done.stdout
        assert given[:4] in ([], ["-n", "4", "--dist", "worksteal"])
        return set(given[4:])


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def of(*houses: str) -> set[str]:
    return {f"tests/{name}" for name in houses}


@pytest.mark.parametrize("house", HOUSES)
def test_a_house_brings_those_that_need_it(house: str) -> None:
    names = {each.name for each in HOUSES.values() if HOUSES[house] in each.needed()}
    assert with_importers({house}) == names


def test_a_house_its_importers_and_the_fixed_part_run(repository: Repository) -> None:
    repository.change("host")
    assert repository.run() == of("host", "finished", "service") | FIXED


def test_a_room_named_as_a_house_runs_with_it(repository: Repository) -> None:
    repository.change("callback")
    houses = of("callback", "host", "finished", "service", "trainer")
    assert repository.run() == houses | FIXED | {"tests/together/callback"}


@pytest.mark.parametrize("room", OF_JUDGE)
def test_a_room_of_the_judge_imports_no_house_above_it(room: str) -> None:
    below = {each.name for each in HOUSES["judge"].needed()}
    for path in (ROOT / "tests/together" / room).glob("*.py"):
        text = path.read_text("utf-8")
        modules = re.findall(r"^(?:from|import) (ldlm_[\w.]+)", text, re.MULTILINE)
        assert {house_of(name) for name in modules} - {None} <= below
        assert "-m ldlm_monitor" not in text


@pytest.mark.parametrize("how", ["committed", "staged", "not staged", "new", "moved away"])
def test_a_file_counts_however_it_differs(repository: Repository, how: str) -> None:
    module = "trainer/ldlm_trainer/__init__.py"
    if how == "new":
        repository.write("trainer/ldlm_trainer/step.py")
    elif how == "moved away":
        repository.git("mv", module, "doctor/ldlm_doctor/model.py")
    else:
        repository.change("trainer")
    if how == "staged":
        repository.git("add", "--all")
    if how == "committed":
        repository.commit()
    both = ("trainer", "doctor", "service") if how == "moved away" else ("trainer",)
    assert repository.run() == of(*both) | FIXED


def test_what_main_got_since_does_not_count(repository: Repository) -> None:
    repository.change("trainer")
    repository.commit()
    repository.git("switch", "--quiet", "main")
    repository.change("base")
    repository.commit()
    repository.git("switch", "--quiet", "change")
    assert repository.run() == of("trainer") | FIXED


def test_what_a_link_of_a_house_leads_to_is_of_the_house(repository: Repository) -> None:
    repository.write("rules/default.yml", "groups: []\n")
    houses = of("judge", "screen", "host", "finished", "service")
    assert repository.run() == houses | FIXED | {"tests/together/rules"}


def test_a_change_of_pages_runs_the_tests_that_read_them(repository: Repository) -> None:
    repository.write("docs/run.md", "# Run\n")
    assert repository.run() == {"tests/together/docs", "tests/screen/test_pages.py"}


@pytest.mark.parametrize(
    "name",
    ["pyproject.toml", "requirements/run.txt", "tests/conftest.py", "tests/run.sh", "setup.sh"],
)
def test_what_all_tests_depend_on_runs_everything(repository: Repository, name: str) -> None:
    repository.change("doctor")
    repository.write(name, "printf 'given %s\\n' \"$@\" # changed\n")
    assert repository.run() == set()


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("tests/logs/conftest.py", "tests/logs"),
        ("tests/together/monitor/test_zones.py", "tests/together/monitor"),
        ("tests/together/live/test_daemon.py", "tests/together/live/test_daemon.py"),
        ("tests/together/live/conftest.py", "tests/together/live"),
        ("tests/together/callback/conftest.py", "tests/together/callback"),
        ("tests/together/rules/test_default_pack.py", "tests/together/rules/test_default_pack.py"),
        ("deploy/wheels.sh", "tests/together/deploy"),
    ],
)
def test_a_changed_test_runs_beside_the_fixed_part(
    repository: Repository, name: str, more: str
) -> None:
    repository.write(name, "x = 1\n")
    assert repository.run() | FIXED == {more} | FIXED


def test_a_room_that_waits_runs_where_a_folder_of_its_name_changed(repository: Repository) -> None:
    repository.write("monitor/ldlm_monitor/host/supervise/relay.py")
    assert "tests/together/supervise" in repository.run()


def test_a_file_within_a_folder_that_runs_is_not_given_beside_it(repository: Repository) -> None:
    repository.write("tests/together/live/conftest.py", "x = 1\n")
    assert "tests/together/live" in (tests := repository.run())
    assert "tests/together/live/test_main_job.py" not in tests


def test_on_main_and_without_it_the_last_commit_counts(repository: Repository) -> None:
    repository.change("trainer")
    repository.commit()
    repository.git("branch", "--force", "main")
    assert repository.run() == of("trainer") | FIXED
    repository.git("branch", "--delete", "--force", "main")
    assert repository.run() == of("trainer") | FIXED


def test_another_base_can_be_named(repository: Repository) -> None:
    repository.change("trainer")
    repository.commit()
    repository.change("doctor")
    repository.commit()
    assert repository.run("HEAD~1") == of("doctor", "service") | FIXED


def test_it_says_what_is_missing(repository: Repository, tmp_path: Path) -> None:
    unknown = repository.ask("release")
    assert (unknown.returncode, unknown.stderr) == (
        1,
        "tests/changed.py: there is no commit release\n",
    )
    shutil.rmtree(tmp_path / ".git")
    repository.git("init", "--quiet")
    repository.commit()
    first = repository.ask()
    assert first.returncode == 1
    assert "git fetch --unshallow" in first.stderr


def test_without_a_change_nothing_runs(repository: Repository) -> None:
    repository.git("commit", "--quiet", "--allow-empty", "--message", "x")
    done = repository.ask("main")
    assert done.stdout.startswith("tests/changed.py: nothing differs from ")
