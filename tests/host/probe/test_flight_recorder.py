"""What the flight recorders of several ranks say of who holds up a collective.

The dumps under `data` were written by torch 2.13 over gloo (`recorded_job.py`); NCCL's have
the same form and name the members of a group besides.
"""

import importlib.util
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ldlm_monitor.host.probe.collective_states import Finding, analyse, describe
from ldlm_monitor.host.probe.flight_recorder import Dump, DumpError, dump_of, find, read

HERE = Path(__file__).parent
DATA = HERE / "data"


def recorded(case: str, name: str = "comm_lib_trace_rank_{}") -> list[Dump]:
    return [read(DATA / case / name.format(rank), rank) for rank in range(3)]


def of_nccl(rank: int, enqueued: int, completed: int, size: int = 64, **called: object) -> Dump:
    """A dump of the default group as ProcessGroupNCCL writes it."""
    entries = [
        {
            "pg_id": 0,
            "process_group": ("0", "default_pg"),
            "collective_seq_id": seq,
            "profiling_name": "nccl:all_reduce",
            "input_sizes": [[1024]],
            "input_dtypes": ["Float"],
            "state": "completed" if seq <= completed else "started",
            "time_created_ns": 1_795_281_456_000_000_000 + seq,
            "is_p2p": False,
            **(called if seq > completed else {}),
        }
        for seq in range(max(1, completed - 2), enqueued + 1)
    ]
    status = {"last_enqueued_collective": enqueued, "last_completed_collective": completed}
    members = {"name": "0", "desc": "default_pg", "ranks": str(list(range(size)))}
    tree = {"entries": entries, "pg_config": {"0": members}, "pg_status": {"0": status}}
    dump = dump_of(tree, rank)
    assert dump is not None
    return dump


def only(findings: list[Finding]) -> Finding:
    (finding,) = findings
    return finding


@pytest.mark.parametrize("form", ["comm_lib_trace_rank_{}", "status_rank_{}.json"])
def test_the_rank_that_did_not_join_is_named_with_the_collective(form: str) -> None:
    finding = only(analyse(recorded("missing", form)))
    assert (finding.group, finding.seq, finding.operation) == ("default_pg", 4, "all_reduce")
    assert (finding.missing, finding.waiting) == ((2,), (0, 1))


def test_where_the_missing_rank_was_last_is_told_where_stacks_were_recorded() -> None:
    text = describe(only(analyse(recorded("missing"))))
    assert "rank 2 did not join it; rank 2 was last in train_step (/job/train.py:29)" in text


def test_the_rank_that_called_another_operation_is_the_odd_one() -> None:
    finding = only(analyse(recorded("mismatch")))
    assert (finding.missing, finding.mismatched) == ((), (1,))
    assert finding.operation == "all_reduce"
    assert finding.frames[1].endswith("(/job/train.py:48)")


def test_of_a_group_whose_members_nobody_tells_nobody_is_acquitted() -> None:
    finding = only(analyse(recorded("group")))
    assert (finding.group, finding.waiting) == ("tensor_parallel", (0,))
    assert "every rank joined" not in describe(finding)


def test_the_first_rank_is_no_reference() -> None:
    dumps = [of_nccl(0, 10, 9, profiling_name="nccl:broadcast")]
    dumps += [of_nccl(rank, 10, 9) for rank in range(1, 64)]
    finding = only(analyse(dumps))
    assert (finding.mismatched, finding.operation) == ((0,), "all_reduce")


def test_other_sizes_are_a_mismatch_where_all_must_be_alike() -> None:
    dumps = [of_nccl(rank, 10, 9) for rank in range(63)]
    dumps.append(of_nccl(63, 10, 9, input_sizes=[[512]]))
    assert only(analyse(dumps)).mismatched == (63,)


def test_uneven_sizes_of_an_all_to_all_are_none() -> None:
    dumps = [
        of_nccl(rank, 10, 9, profiling_name="nccl:all_to_all", input_sizes=[[rank]])
        for rank in range(64)
    ]
    assert only(analyse(dumps)).mismatched == ()


def test_of_a_draw_nobody_is_accused() -> None:
    dumps = [of_nccl(0, 10, 9, size=2), of_nccl(1, 10, 9, size=2, input_sizes=[[512]])]
    finding = only(analyse(dumps))
    assert finding.mismatched == ()
    assert "do not agree" in describe(finding)


def test_ranks_that_enqueue_ahead_do_not_make_the_others_missing() -> None:
    dumps = [of_nccl(rank, 7800 + rank, 7752) for rank in range(64)]
    finding = only(analyse(dumps))
    assert (finding.seq, finding.missing) == (7753, ())
    assert "the transfer itself hangs" in describe(finding)


def test_a_rank_that_learned_late_of_what_finished_does_not_move_the_place() -> None:
    dumps = [of_nccl(rank, 7753, 7750 if rank == 5 else 7752) for rank in range(64) if rank != 37]
    dumps.append(of_nccl(37, 7752, 7752))
    finding = only(analyse(dumps))
    assert (finding.seq, finding.missing) == (7753, (37,))


def test_of_two_that_disagree_the_one_that_got_further_is_believed() -> None:
    dumps = [of_nccl(0, 4, 2, size=3), of_nccl(1, 4, 3, size=3), of_nccl(2, 3, 3, size=3)]
    assert only(analyse(dumps)).missing == (2,)


def test_a_member_without_a_dump_is_told() -> None:
    finding = only(analyse([of_nccl(rank, 10, 9) for rank in range(64) if rank != 37]))
    assert (finding.missing, finding.without_dump) == ((), (37,))
    assert "no dump of rank 37" in describe(finding)


def test_the_dumps_of_one_node_do_not_make_the_ranks_of_others_suspects() -> None:
    text = describe(only(analyse([of_nccl(rank, 10, 9) for rank in range(8)])))
    assert "dumps of 8 of 64 ranks are here" in text
    assert "no dump of" not in text


def test_a_world_size_tells_who_lacks_where_the_dumps_do_not() -> None:
    assert only(analyse(recorded("missing")[:2], world_size=3)).without_dump == (2,)


def test_ranks_that_finished_all_they_began_hang_in_no_collective() -> None:
    assert analyse([of_nccl(rank, 10, 10) for rank in range(64)]) == []


def test_what_goes_from_one_rank_to_another_is_no_collective() -> None:
    dumps = [of_nccl(rank, 10, 9, is_p2p=True) for rank in range(2)]
    assert all(entry.seq < 10 for dump in dumps for entry in dump.entries)


def test_dumps_are_found_under_their_usual_names_if_they_are_of_this_stall(tmp_path) -> None:
    for case, at in (("missing", 2000.0), ("mismatch", 1000.0)):
        for path in (DATA / case).glob("comm_lib*"):
            copy = shutil.copy(path, tmp_path / (case + path.name))
            os.utime(copy, (at, at))
    found = find([tmp_path], [], [], since=1500.0)
    assert {rank: path.name[:7] for rank, path in found.items()} == dict.fromkeys(
        range(3), "missing"
    )


@pytest.mark.parametrize("variable", ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"])
def test_dumps_are_found_where_the_processes_write_them(tmp_path, variable: str) -> None:
    (tmp_path / "traces").mkdir()
    written = tmp_path / "traces/job7_12"
    written.touch()
    for reported in (str(tmp_path / "traces/job7_"), "traces/job7_"):
        environment = {variable: reported, "PWD": str(tmp_path)}
        assert find([], [], [environment], since=0.0) == {12: written}
    home = tmp_path / ".cache/torch/nccl_trace_rank_3"
    home.parent.mkdir(parents=True)
    home.touch()
    assert find([], [], [{"HOME": str(tmp_path)}], since=0.0) == {3: home}


def test_dumps_beside_one_that_the_log_names_are_found(tmp_path) -> None:
    for rank in range(3):
        (tmp_path / f"trace.{rank}").touch()
    (tmp_path / "other.1").touch()
    assert set(find([], [tmp_path / "trace.0"], [], since=0.0)) == {0, 1, 2}


def test_what_is_no_dump_is_refused_in_words(tmp_path) -> None:
    fifo = tmp_path / "nccl_trace_rank_0"
    os.mkfifo(fifo)
    with pytest.raises(DumpError, match="not a regular file"):
        read(fifo, 0)
    link = tmp_path / "nccl_trace_rank_1"
    link.symlink_to(DATA / "missing/comm_lib_trace_rank_1")
    with pytest.raises(DumpError):
        read(link, 1)
    for name, body in (("torn", b"\x80\x02}q"), ("json", b'{"a": '), ("deep", b"[" * 100_000)):
        (tmp_path / name).write_bytes(body)
        with pytest.raises(DumpError):
            read(tmp_path / name, 0)
    (tmp_path / "plain").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(DumpError, match="not a flight recorder's dump"):
        read(tmp_path / "plain", 0)


def test_a_dump_of_odd_values_is_passed_over_piece_by_piece() -> None:
    tree = {
        "entries": [7, {"collective_seq_id": "x"}, {"collective_seq_id": 3, "process_group": 9}],
        "pg_config": {"0": {"ranks": 12.5}, "1": None},
        "pg_status": {"0": {"last_enqueued_collective": None}},
    }
    dump = dump_of(tree, 0)
    assert dump is not None
    assert [entry.seq for entry in dump.entries] == [3]
    analyse([dump])


def test_a_number_beyond_64_bits_is_passed_over() -> None:
    huge = [of_nccl(rank, 10, 9, time_created_ns=1 << 2000) for rank in range(2)]
    assert only(analyse(huge)).since == 0.0
    dump = dump_of({"entries": [{"collective_seq_id": 1 << 64, "process_group": ("0", "d")}]}, 0)
    assert dump is not None
    assert dump.entries == []


class Counted(list[object]):
    """A list that counts how often its text is made."""

    texts = 0

    def __repr__(self) -> str:
        Counted.texts += 1
        return super().__repr__()


def test_lists_of_one_list_again_and_again_are_not_written_out() -> None:
    """A pickle of some hundred bytes may contain a list whose text has 2^40 characters."""
    nested = Counted()
    entry = {"collective_seq_id": 1, "pg_id": nested, "process_group": ("0", "d")}
    dump = dump_of({"entries": [entry], "pg_config": {"0": {"ranks": nested}}}, 0)
    assert dump is not None
    assert Counted.texts == 0


def test_the_members_of_a_group_are_read_from_a_text_and_from_a_list() -> None:
    for ranks in ("[0, 1]", [0, 1]):
        dump = dump_of({"entries": [], "pg_config": {"0": {"ranks": ranks}}}, 0)
        assert dump is not None
        assert dump.members == {"0": (0, 1)}


def test_a_job_larger_than_any_has_no_known_members() -> None:
    finding = only(analyse(recorded("missing"), world_size=2_000_000))
    assert (finding.all_known, finding.without_dump) == (False, ())


def test_an_entry_that_is_named_a_million_times_costs_no_more_than_its_bounds() -> None:
    sizes = [[1] * 1000] * 1000
    entry = {"collective_seq_id": 1, "process_group": ("0", "d"), "input_sizes": sizes}
    dump = dump_of({"entries": [entry] * 50_000}, 0)
    assert dump is not None
    assert len(dump.entries) <= 20_000
    assert len(dump.entries[0].sizes) < 5000


@pytest.mark.live
@pytest.mark.long  # four ranks of torch; each run reads the recorders that genuine jobs left
def test_a_job_that_hangs_now_is_read_the_same(tmp_path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed here")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [sys.executable, HERE / "recorded_job.py", "missing", str(rank), "3", port, tmp_path]
        )
        for rank in range(3)
    ]
    assert [each.wait(120) for each in ranks] == [0, 0, 0]
    dumps = [read(path, rank) for rank, path in find([tmp_path], [], [], since=0.0).items()]
    assert only(analyse(dumps)).missing == (2,)
    assert json.loads((tmp_path / "status_rank_0.json").read_text())["version"]
