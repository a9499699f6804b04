"""`doctor --diff BASE`: what a change touches, as a comment for its review."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ldlm_doctor.model import checks

PUBLIC = Path(__file__).parents[2] / "doctor/public.json"
OLD = "#!/bin/bash\nexport NCCL_IB_TIMEOUT=90\nsrun python train.py\n"


def git(folder: Path, *arguments: str) -> None:
    who = {
        f"GIT_{role}_{what}": "a@b.c"
        for role in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    subprocess.run(("git", *arguments), cwd=folder, check=True, env={**os.environ, **who})


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "old.sh").write_text(OLD)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "start")
    return tmp_path


def doctor(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "ldlm_monitor", "doctor", *arguments)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_only_lines_that_differ_are_reported(repository: Path) -> None:
    assert (
        "nothing in the lines that differ from `main`"
        in doctor(repository, ".", "--diff", "main").stdout
    )
    (repository / "old.sh").write_text(OLD + "export NCCL_TIMEOUT=`date`1800\n")
    git(repository, "commit", "-q", "-a", "-m", "more")

    done = doctor(repository, ".", "--diff", "main~1", "--fail-on", "warning")

    assert "`old.sh:4`" in done.stdout
    assert "nccl-timeout-unread" in done.stdout
    assert "nccl-ib-timeout-range" not in done.stdout
    assert "`date`" not in done.stdout, "what a file holds cannot end the code that quotes it"
    assert done.returncode == 3


def test_how_a_user_has_set_git_up_changes_nothing(repository: Path) -> None:
    git(repository, "config", "diff.mnemonicPrefix", "true")
    git(repository, "config", "diff.noprefix", "true")
    (repository / "größe.sh").write_text(OLD)
    (repository / "old.sh").write_text(OLD + "export NCCL_TIMEOUT=1800\n")
    git(repository, "add", ".")

    done = doctor(repository, ".", "--diff", "main")

    assert "`old.sh:4`" in done.stdout
    assert "`größe.sh:2`" in done.stdout


def test_what_the_base_has_changed_since_is_no_change(repository: Path) -> None:
    git(repository, "checkout", "-q", "-b", "feature")
    git(repository, "checkout", "-q", "main")
    (repository / "old.sh").write_text(OLD.replace("90", "22"))
    git(repository, "commit", "-q", "-a", "-m", "mended")
    git(repository, "checkout", "-q", "feature")

    assert "nothing in the lines" in doctor(repository, ".", "--diff", "main").stdout


@pytest.mark.parametrize("base", ["nosuch", "--output=planted"])
def test_what_is_no_commit_is_refused_in_one_line(repository: Path, base: str) -> None:
    done = doctor(repository, ".", f"--diff={base}")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert sorted(path.name for path in repository.iterdir()) == [".git", "old.sh"]


def test_labels_of_public_findings_name_checks_that_there_are() -> None:
    repositories = json.loads(PUBLIC.read_text())["repositories"]
    assert len(repositories) >= 30
    labels = [each for repository in repositories for each in repository["findings"]]
    assert {each["label"] for each in labels} <= {"true", "arguable", "false"}
    assert {each["check"] for each in labels} <= set(checks())
    assert all("why" in each for each in labels if each["label"] != "true")
