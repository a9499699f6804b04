"""Which files the arguments mean."""

from pathlib import Path

import pytest

from ldlm_monitor.base.errors import InputError
from ldlm_monitor.logs.source.input_patterns import resolve


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def names(patterns, base: Path) -> list[str]:
    return [str(path.relative_to(base)) for path in patterns.files()]


def test_a_file_a_glob_and_a_missing_file(tmp_path):
    touch(tmp_path / "a.log", tmp_path / "b.log", tmp_path / "c.txt")
    patterns = resolve(["c.txt", "*.log", "later.log", "none*"], base=tmp_path)
    assert names(patterns, tmp_path) == ["a.log", "b.log", "c.txt"]
    assert patterns.missing() == ["later.log", "none*"]


def test_late_files_join(tmp_path):
    patterns = resolve(["logs/**/*.log", "x.log"], base=tmp_path)
    assert patterns.files() == []
    assert patterns.folders() == [tmp_path], "where `logs` will appear"
    touch(tmp_path / "logs/a.log", tmp_path / "logs/deep/er/b.log", tmp_path / "x.log")
    assert names(patterns, tmp_path) == ["logs/a.log", "logs/deep/er/b.log", "x.log"]
    assert patterns.missing() == []
    assert patterns.folders() == [
        tmp_path, tmp_path / "logs", tmp_path / "logs/deep", tmp_path / "logs/deep/er",
    ]  # fmt: skip


def test_a_folder_means_the_log_files_in_it_as_torchrun_lays_them_out(tmp_path):
    logs = tmp_path / "logs"
    wanted = [
        logs / "train.log",
        logs / "job_x1/attempt_0/3/stderr.log",
        logs / "saved/run/t.jsonl",
    ]
    touch(*wanted, logs / ".hidden.log", logs / ".git/x.log", logs / "model.pt", logs / "a.py")
    touch(logs / "wandb/run-1/files/output.log")
    patterns = resolve(["logs"], base=tmp_path)
    assert patterns.files() == sorted(wanted)
    assert (logs / "job_x1/attempt_0/3") in patterns.folders()


def test_a_folder_with_no_log_in_it_is_missing(tmp_path):
    (tmp_path / "empty").mkdir()
    assert resolve(["empty"], base=tmp_path).missing() == ["empty"]


def test_several_names_of_one_file_are_one_and_the_plain_one_is_kept(tmp_path):
    log = tmp_path / "train_1.log"
    touch(log)
    (tmp_path / "latest.log").symlink_to(log)
    patterns = resolve(["*.log", "train_1.log", "./train_1.log"], base=tmp_path)
    assert patterns.files() == [log]


EVENTS = "runs/exp/events.out.tfevents.1.host.1.0"
MLFLOW = "mlruns/0/0123456789abcdef0123456789abcdef"


def test_a_folder_without_logs_means_what_trackers_keep_in_it(tmp_path):
    touch(tmp_path / EVENTS, tmp_path / MLFLOW / "meta.yaml", tmp_path / MLFLOW / "params/lr")
    touch(tmp_path / MLFLOW / "metrics/train/loss", tmp_path / MLFLOW / "metrics/lr.log")
    metrics = [f"{MLFLOW}/metrics/lr.log", f"{MLFLOW}/metrics/train/loss"]
    assert names(resolve(["."], base=tmp_path), tmp_path) == [metrics[0], EVENTS]
    assert names(resolve(["mlruns"], base=tmp_path), tmp_path) == metrics
    assert names(resolve(["runs"], base=tmp_path), tmp_path) == [EVENTS]
    assert names(resolve([f"{MLFLOW}/metrics"], base=tmp_path), tmp_path) == metrics


def test_a_folder_without_logs_means_the_transaction_logs_of_its_wandb_folders(tmp_path):
    run = "job/wandb/run-20261121_211546-a1"
    touch(tmp_path / run / "run-a1.wandb", tmp_path / run / "files/output.log")
    touch(tmp_path / run / "logs/debug.log", tmp_path / "copied/run-b2.wandb")
    (tmp_path / "job/wandb/latest-run").symlink_to(tmp_path / run)
    found = ["copied/run-b2.wandb", f"{run}/run-a1.wandb"]
    assert names(resolve(["."], base=tmp_path), tmp_path) == found
    touch(tmp_path / "job/train.log")
    assert names(resolve(["."], base=tmp_path), tmp_path) == ["job/train.log"]


def test_a_folder_with_logs_means_these_and_not_what_repeats_them(tmp_path):
    touch(tmp_path / EVENTS, tmp_path / "train.log", tmp_path / "metrics/loss")
    assert names(resolve(["."], base=tmp_path), tmp_path) == ["train.log"]
    assert names(resolve([".", "runs/*/*"], base=tmp_path), tmp_path) == [EVENTS, "train.log"]


def test_the_folder_of_a_links_target_is_watched_too(tmp_path):
    touch(tmp_path / "disk/train.log")
    (tmp_path / "here").mkdir()
    (tmp_path / "here/train.log").symlink_to(tmp_path / "disk/train.log")
    folders = resolve(["here/train.log"], base=tmp_path).folders()
    assert folders == [(tmp_path / "disk").resolve(), tmp_path / "here"]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path):
    touch(tmp_path / "run[1].log", tmp_path / "run1.log")
    assert names(resolve(["run[1].log"], base=tmp_path), tmp_path) == ["run[1].log"]


def test_links_in_circles_are_not_walked(tmp_path):
    touch(tmp_path / "a/x.log")
    (tmp_path / "a/up").symlink_to(tmp_path)
    (tmp_path / "a/again").symlink_to(tmp_path / "a")
    assert names(resolve(["**/*.log"], base=tmp_path), tmp_path) == ["a/x.log"]
    assert names(resolve(["a"], base=tmp_path), tmp_path) == ["a/x.log"]


def test_paths_stay_as_they_were_spelled(tmp_path, monkeypatch):
    touch(tmp_path / "logs/a.log")
    monkeypatch.chdir(tmp_path)
    patterns = resolve(["logs/*.log"], base=Path())
    assert patterns.files() == [Path("logs/a.log")]
    assert patterns.folders() == [Path("logs")]
    assert resolve(["*.log"], base=Path()).folders() == [Path()]


def test_a_dash_is_standard_input(tmp_path):
    patterns = resolve(["-"], base=tmp_path)
    assert patterns.standard_input
    assert patterns.files() == patterns.missing() == []


@pytest.mark.parametrize("argument", ["", "a\0b"])
def test_what_cannot_be_a_name_is_refused(argument, tmp_path):
    with pytest.raises(InputError, match="is not a file name"):
        resolve([argument], base=tmp_path)


def test_an_argument_that_the_system_refuses_is_no_pipe(tmp_path):
    assert resolve(["a" * 300], base=tmp_path).pipes() == []


def test_a_link_to_a_folder_beside_it_stands_for_what_it_leads_to(tmp_path):
    """`latest` is switched for each launch: its files are those of the launch, by their names."""
    touch(tmp_path / "runs/run_1/train.log", tmp_path / "runs/run_2/train.log")
    link = tmp_path / "runs/latest"
    for run in ("run_1", "run_2"):
        link.unlink(missing_ok=True)
        link.symlink_to(run)
        for argument in ("runs/latest/train.log", "runs/latest", "runs/latest/*.log"):
            patterns = resolve([argument], base=tmp_path)
            assert names(patterns, tmp_path) == [f"runs/{run}/train.log"]
            assert tmp_path / "runs" in patterns.folders()
        assert resolve(["runs/latest/train.log"], base=tmp_path).names(link / "train.log")
    found = [f"runs/run_{number}/train.log" for number in (1, 2)]
    assert names(resolve(["runs/*/train.log"], base=tmp_path), tmp_path) == found


def test_a_link_to_a_folder_elsewhere_keeps_its_name(tmp_path):
    touch(tmp_path / "disk/logs/train.log")
    (tmp_path / "logs").symlink_to(tmp_path / "disk/logs")
    assert names(resolve(["logs/train.log"], base=tmp_path), tmp_path) == ["logs/train.log"]
