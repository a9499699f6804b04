"""What another user of the machine can plant in or around the state folder."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.service.state.database import Database
from ldlm_monitor.service.state.state_dir import LOCK, StateDir
from ldlm_monitor.service.state.state_store import State, StateStore

SCHEMA = "CREATE TABLE IF NOT EXISTS kept (number INTEGER NOT NULL);"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target"
    path.write_text("precious\n")
    path.chmod(0o644)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


def untouched(target: Path) -> bool:
    return target.read_text() == "precious\n" and target.stat().st_mode & 0o777 == 0o644


def test_the_state_is_for_its_owner_alone(folder: Path) -> None:
    before = os.umask(0)
    try:
        state = StateDir(folder)
        store = StateStore(state.path / "ledger.sqlite")
        store.commit(State())
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    store.close()
    state.close()


def test_a_state_folder_that_others_may_enter_is_closed_to_them(folder: Path) -> None:
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    (folder / "ledger.sqlite").touch(mode=0o644)
    state = StateDir(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert "0700" in (state.notice or "")
    StateStore(folder / "ledger.sqlite").close()
    assert (folder / "ledger.sqlite").stat().st_mode & 0o777 == 0o600
    state.close()


def test_a_folder_with_files_of_others_is_left_as_it_is_and_said(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "train.log").touch()
    state = StateDir(folder)
    assert folder.stat().st_mode & 0o777 == 0o755
    assert "a folder of its own" in (state.notice or "")
    state.close()


def test_a_state_folder_of_another_user_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    owner = folder.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1 if owner else 1000)
    if owner == 0:
        os.chown(folder, 1001, -1)
    with pytest.raises(UsageError, match="another user"):
        StateDir(folder)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757])
def test_a_folder_that_every_user_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    """With a file of somebody else in it; one with our files alone is closed instead."""
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "theirs.txt").touch()
    folder.chmod(mode)
    with pytest.raises(UsageError, match="every user may write to it"):
        StateDir(folder)
    assert [path.name for path in folder.iterdir()] == ["theirs.txt"]


@pytest.mark.parametrize("dangling", [False, True])
def test_a_planted_lock_file_does_not_reach_its_target(
    tmp_path: Path, target: Path, dangling: bool
) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    (folder / LOCK).symlink_to(tmp_path / "new" if dangling else target)
    state = StateDir(folder)
    state.announce("http://127.0.0.1:9847")
    state.close()
    assert "nothing will survive a restart" in (state.notice or "")
    assert untouched(target)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("dangling", [False, True])
def test_a_planted_database_does_not_reach_its_target(
    tmp_path: Path, target: Path, dangling: bool
) -> None:
    path = tmp_path / "outbox.sqlite"
    path.symlink_to(tmp_path / "new" if dangling else target)
    database = Database(path, SCHEMA)
    database.run(lambda db: db.execute("INSERT INTO kept VALUES (1)"))
    database.close()
    assert untouched(target)
    assert not (tmp_path / "new").exists()
    assert stat.S_ISREG(path.lstat().st_mode)
    assert path.with_name(f"{path.name}.damaged-1").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without a name")
@pytest.mark.parametrize("home", [[], ["HOME="]], ids=["none", "empty"])
def test_a_user_without_a_name_or_a_home_gets_a_report(tmp_path: Path, home: list[str]) -> None:
    """As in a container that is given any user id; with root's right to read our installation."""
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not here")
    (tmp_path / "a.log").write_text("step 1 loss 2.5\n")
    rights = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    user = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", *rights]
    unset = ["env", "-u", "HOME", "-u", "XDG_STATE_HOME", "-u", "XDG_CACHE_HOME", *home]
    command = [*unset, *user, sys.executable, "-m", "ldlm_monitor", "--once", "a.log"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "health report" in done.stdout
