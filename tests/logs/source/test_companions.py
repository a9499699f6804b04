"""Which files belong to a log's launch, and which only look so."""

from pathlib import Path

import pytest

from ldlm_monitor.logs.source.companions import LaunchFacts, Surroundings, companions


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "train_logs/train_20270115_080000_node0.log")


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}\n")
    return path


def found(log: Path, **facts: object) -> list[Path]:
    return [companion.path for companion in companions(log, LaunchFacts(**facts), Surroundings())]


def test_the_working_directory_that_the_log_prints(log, tmp_path):
    rows = write(tmp_path / "elsewhere/saved/run_b/training_log.jsonl")
    rank = write(tmp_path / "elsewhere/saved/run_b/health_rank1.jsonl")
    write(tmp_path / "saved/run_a/training_log.jsonl")
    facts = LaunchFacts(working_directory=str(rows.parent))
    assert found(log, working_directory=str(rows.parent)) == [rank, rows]
    assert (
        companions(log, facts, Surroundings())[0].reason
        == f"its log contains the working directory {rows.parent}"
    )


def test_a_working_directory_of_another_machine_is_found_by_its_last_part(log, tmp_path):
    rows = write(tmp_path / "saved/run_b/training_log.jsonl")
    write(tmp_path / "saved/run_a/training_log.jsonl")
    assert found(log, working_directory="/cluster/train/saved/run_b") == [rows]


def test_the_run_name_of_the_launch_command(log, tmp_path):
    rows = write(tmp_path / "saved/run_b/training_log.jsonl")
    write(tmp_path / "saved/run_a/training_log.jsonl")
    assert found(log, run_names=("run_b",)) == [rows]


def test_a_copied_run_with_a_bare_saved_folder(log, tmp_path):
    """As runs are handed on: RUN/train_logs/x.log beside RUN/saved/training_log.jsonl."""
    rows = write(tmp_path / "saved/training_log.jsonl")
    assert found(log, working_directory="/cluster/train/saved/run_b") == [rows]
    assert found(log) == [rows]


def test_another_runs_folder_is_not_taken_for_want_of_a_better_one(log, tmp_path):
    write(tmp_path / "saved/run_a/training_log.jsonl")
    assert found(log, run_names=("run_b",)) == []


def test_without_a_name_all_files_near_the_log_may_be_companions(log, tmp_path):
    """Their content decides: tests/together/monitor/test_kinship.py."""
    rows = [write(tmp_path / f"saved/run_{name}/training_log.jsonl") for name in "ab"]
    assert found(log) == rows
    assert {each.reason for each in companions(log, LaunchFacts(), Surroundings())} == {""}


def test_files_beside_the_log(tmp_path):
    log = write(tmp_path / "run/output.log")
    rows = write(tmp_path / "run/training_log.jsonl")
    ranks = [write(tmp_path / f"run/health_rank{rank}.jsonl") for rank in (0, 1)]
    assert found(log) == [*ranks, rows]
    assert found(rows) == ranks, "no file is its own companion"


def test_the_file_that_nccl_writes(log, tmp_path):
    nccl = write(tmp_path / "tmp/nccl_debug_0.log")
    assert found(log, nccl_debug_file=str(nccl)) == [nccl]
    beside = write(log.parent / "nccl_debug_1.log")
    assert found(log, nccl_debug_file="/elsewhere/nccl_debug_1.log") == [beside]


def test_nccls_files_of_all_processes(log, tmp_path):
    mine = [write(tmp_path / f"nccl.node1.{pid}.log") for pid in (40, 41)]
    pattern = str(tmp_path / "nccl.%h.%p.log")
    assert found(log, nccl_debug_file=pattern) == mine


@pytest.mark.parametrize(
    "printed", ["/etc/passwd.db", "../../secret.log", "/", "", "[.log", "a\0b"]
)
def test_a_log_cannot_make_us_read_just_anything(log, printed):
    assert found(log, nccl_debug_file=printed) == []
    assert found(log, working_directory=printed) == []


def test_nothing_near_is_nothing_found(log):
    assert found(log) == []


def test_what_nccl_replaces_in_a_name_leads_to_no_other_kind_of_file(log, tmp_path):
    write(tmp_path / "keys/host.key")
    write(tmp_path / "keys/.host")
    assert found(log, nccl_debug_file=str(tmp_path / "keys/%h")) == []


def test_a_link_to_a_folder_is_a_folder_and_one_to_a_file_is_none(log, tmp_path):
    write(tmp_path / "disk2/run_b/training_log.jsonl")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved/run_b").symlink_to(tmp_path / "disk2/run_b")
    (tmp_path / "saved/run_c").symlink_to(tmp_path / "disk2/run_b/training_log.jsonl")
    assert found(log, run_names=("run_b",)) == [tmp_path / "saved/run_b/training_log.jsonl"]


def test_a_link_that_leads_to_itself_is_no_folder(log, tmp_path):
    saved = tmp_path / "saved"
    saved.symlink_to(saved)
    rows = write(log.parent / "training_log.jsonl")
    assert found(log) == [rows]
