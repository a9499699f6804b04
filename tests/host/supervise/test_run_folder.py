"""The folders of supervised runs, and how a run is named and found."""

import os
import stat
from pathlib import Path

import pytest

from ldlm_monitor.base.errors import InputError, UsageError
from ldlm_monitor.host.probe import process
from ldlm_monitor.host.supervise.run_folder import (
    RECORD,
    RunRecord,
    all_runs,
    find_run,
    keep,
    name_of,
    new_folder,
    new_log,
    runs_dir,
)

NOW = 1_769_681_700.0


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "ldlm-monitor" / "runs"


def record(name: str, at: float = NOW, **more: object) -> RunRecord:
    facts = {"command": ("true",), "directory": "/", "log": "/a.log", **more}
    return RunRecord.model_validate({"name": name, "started_at": at, **facts})


def kept(name: str, at: float = NOW, **more: object) -> RunRecord:
    (runs_dir() / name).mkdir(parents=True)
    return keep(record(name, at, **more))


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python src/train.py --lr 3", "train"), ("torchrun --nproc 8 run_gpt.py", "run_gpt"),
        ("bash jobs/night.sh", "night"), ("sbatch a.sbatch", "a"), ("sbatch b.slurm", "b"),
        ("python -m trainer", "trainer"), ("env nice ./train", "train"), ("bash", "bash"),
        ("/bin/python3", "python3"), ("./größe(1).py", "gr_e_1"), ("./___", "run"),
        (f"./{'x' * 99}", "x" * 60),
    ],
)  # fmt: skip
def test_a_run_is_called_after_its_script_or_its_program(command: str, name: str) -> None:
    assert name_of(tuple(command.split())) == name


def test_a_folder_has_name_and_time_and_is_for_its_owner_alone(state: Path) -> None:
    folder = new_folder("train", NOW)
    assert folder.parent == state == runs_dir()
    assert folder.name.startswith("train_2026012")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_runs_that_start_at_once_are_numbered_and_a_hundredth_is_refused() -> None:
    names = [new_folder("train", NOW).name for _ in range(99)]
    first = names[0]
    assert names == [first, *(f"{first}_{number}" for number in range(2, 100))]
    with pytest.raises(UsageError, match="100 runs of this name start at once"):
        new_folder("train", NOW)


@pytest.mark.parametrize("name", ["", "a b", ".a", "-a", "a/b", "x" * 81])
def test_a_name_that_shells_would_quote_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is no name for a run"):
        new_folder(name, NOW)
    assert find_run(name) is None


def test_a_name_may_have_eighty_characters() -> None:
    assert new_folder("x" * 80, NOW).is_dir()


def test_a_place_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"cannot be made .*set XDG_STATE_HOME"):
        new_folder("train", NOW)
    with pytest.raises(UsageError, match=r"cannot be made .*--log-dir"):
        new_log(tmp_path / "file", "train")


def test_a_log_is_made_in_its_folder_and_never_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = new_log(Path("logs/new"), "train_1")
    assert log == tmp_path / "logs" / "new" / "train_1.log"
    assert log.read_bytes() == b""
    with pytest.raises(UsageError, match=r"train_1\.log: cannot be made \(File exists\)"):
        new_log(Path("logs/new"), "train_1")


def test_a_record_is_kept_and_changed_in_one_file_for_its_owner() -> None:
    first = kept("train_20260129_101500")
    changed = keep(first, exit_code=3)
    again = keep(first, ended_at=NOW + 1)
    assert (changed.exit_code, changed.ended_at) == (3, None)
    assert (again.exit_code, again.ended_at) == (3, NOW + 1)
    assert [path.name for path in first.folder.iterdir()] == [RECORD]
    assert stat.S_IMODE((first.folder / RECORD).stat().st_mode) == 0o600
    assert (first.folder / RECORD).read_text().startswith('{"schema":"ldlm.run/1"')


def test_runs_are_listed_from_the_newest() -> None:
    for number, at in enumerate((NOW, NOW + 2, NOW + 1)):
        kept(f"train_20260129_10150{number}", at)
    assert [each.started_at for each in all_runs()] == [NOW + 2, NOW + 1, NOW]


def test_a_run_is_found_by_its_full_name_or_as_the_newest_of_its_name() -> None:
    old = kept("train_20260129_101500", NOW)
    new = kept("train_20260129_101501", NOW + 1)
    second = kept("train_20260129_101501_2", NOW + 2)
    other = kept("train_more_20260129_101502", NOW + 3)
    assert find_run(old.name) == old
    assert find_run(new.name) == new
    assert find_run("train") == second
    assert find_run("train_more") == other
    assert find_run("trai") is None


def test_a_damaged_record_is_told_with_its_folder() -> None:
    damaged = kept("train_20260129_101500")
    (damaged.folder / RECORD).write_text("{")
    with pytest.raises(InputError, match=r"is no record of a run; remove the folder .*, which is"):
        find_run(damaged.name)


def test_a_run_has_its_full_files_in_order_its_log_and_its_jobs(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    for name in ("train.log", "train.log.10", "train.log.9", "train.log.x", "train.log.gz"):
        (tmp_path / name).touch()
    run = kept("train_20260129_101500", log=str(log))
    for job in (7, 12):
        (run.folder / f"job_{job}.out").touch()
    (run.folder / "job_x.txt").touch()
    jobs = [str(run.folder / name) for name in ("job_12.out", "job_7.out")]
    assert run.files == (f"{log}.9", f"{log}.10", str(log), *jobs)


def test_a_run_runs_while_its_relay_is_the_process_that_was_started() -> None:
    own = process.look(os.getpid())
    assert own is not None
    alive = record("train", relay=os.getpid(), relay_started=own.started)
    assert alive.is_running
    assert not alive.model_copy(update={"relay_started": own.started - 1}).is_running
    assert not record("train").is_running


def test_a_zombie_runs_no_more() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    seen = process.look(child)
    assert seen is not None
    assert not record("train", relay=child, relay_started=seen.started).is_running
    os.waitpid(child, 0)
