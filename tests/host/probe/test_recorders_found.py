"""Flight recorders of files and of living ranks together, and forms of dumps by version."""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ldlm_callback import rank as written
from ldlm_callback.rank import pid_namespace, start_ticks
from ldlm_monitor.base.records import Event
from ldlm_monitor.host.probe import collective_states
from ldlm_monitor.host.probe.collective_states import analyse
from ldlm_monitor.host.probe.flight_recorder import CollectiveEntry, Dump, dump_of, find
from ldlm_monitor.host.probe.heartbeat import Page, read
from ldlm_monitor.host.probe.stacks import fetch
from ldlm_monitor.judge.run.verdict import ProbeCandidate


def tree(enqueued: int, completed: int, **called: Any) -> dict[str, Any]:
    entries = [
        {
            "process_group": ("0", "default_pg"),
            "collective_seq_id": seq,
            "profiling_name": "nccl:all_reduce",
            "state": "completed" if seq <= completed else "started",
            **called,
        }
        for seq in range(1, enqueued + 1)
    ]
    members = {"0": {"desc": "default_pg", "ranks": "[0, 1, 2]"}}
    return {"entries": entries, "pg_config": members}


class Recorder:
    """A rank of this very process, whose flight recorder answers on a socket."""

    def __init__(self, folder: Path, rank: int, answer: bytes) -> None:
        self._answer = answer
        self.asked: list[bytes] = []
        address = str(folder / f"recorder{rank}.sock")
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(address)
        self._server.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        identity = written.Identity(
            pid=os.getpid(), stack_signal=0, started=start_ticks(), rank=rank,
            pid_namespace=pid_namespace(), host=socket.gethostname().encode(), stack_file=b"",
            recorder_socket=address.encode(),
        )  # fmt: skip
        path = folder / f"heartbeat_rank{rank}"
        writer = written.HeartbeatPage(path, identity)
        writer.beat(written.Beat(step=4, time=time.time()))
        writer.sync()
        page = read(path)
        assert page is not None
        self.page: Page = page

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                with client:
                    self.asked.append(client.recv(65536))
                    client.sendall(self._answer)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()


def answer(body: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n\r\n".encode() + body


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Callable[..., Recorder]]:
    made: list[Recorder] = []

    def make(rank: int, reply: bytes) -> Recorder:
        made.append(Recorder(tmp_path, rank, reply))
        return made[-1]

    yield make
    for each in made:
        each.close()


Case = Callable[..., ProbeCandidate]


def looked(case: Case, folder: Path, seconds: float = 10.0) -> list[Event]:
    run = case(files=(str(folder / "health_rank0.jsonl"),), world_size=3)
    return [*collective_states.look(run, [], time.monotonic() + seconds)]


def test_the_recorder_of_a_living_rank_counts_beside_the_dumps_of_others(
    case: Case, recorder: Callable[..., Recorder], tmp_path: Path
) -> None:
    living = recorder(1, answer(json.dumps(tree(3, 3)).encode()))
    dumped = recorder(0, answer(json.dumps(tree(9, 9)).encode()))
    for rank in (0, 2):
        (tmp_path / f"nccl_trace_rank_{rank}").write_text(json.dumps(tree(4, 3)))
    (event,) = looked(case, tmp_path)
    assert (event.fields["missing_ranks"], event.fields["waiting_ranks"]) == ([1], [0, 2])
    assert (event.fields["dumps"], event.fields["seq"]) == (3, 4)
    assert (len(living.asked), dumped.asked) == (1, [])
    assert living.asked[0].startswith(b"POST /handler/fr_trace_json ")


def test_without_time_no_dump_is_read_and_no_rank_is_asked(
    case: Case, recorder: Callable[..., Recorder], tmp_path: Path
) -> None:
    living = recorder(1, answer(json.dumps(tree(4, 3)).encode()))
    (tmp_path / "nccl_trace_rank_0").write_text(json.dumps(tree(4, 3)))
    assert looked(case, tmp_path, seconds=0.0) == []
    assert living.asked == []


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 5000, b'{"a": 1}'])
def test_an_answer_that_is_no_dump_is_passed_over(
    case: Case, recorder: Callable[..., Recorder], tmp_path: Path, body: bytes
) -> None:
    recorder(1, answer(body))
    for rank in (0, 2):
        (tmp_path / f"nccl_trace_rank_{rank}").write_text(json.dumps(tree(4, 3)))
    (event,) = looked(case, tmp_path)
    assert (event.fields["ranks_without_dump"], event.fields["dumps"]) == ([1], 2)


@pytest.mark.parametrize(
    "reply",
    [answer(b"none", "404 Not Found"), answer(b"cut", length=100), b"no HTTP\r\n\r\n"],
    ids=["refused", "cut", "another protocol"],
)
def test_what_a_recorder_does_not_send_whole_is_nothing(
    recorder: Callable[..., Recorder], reply: bytes
) -> None:
    assert fetch(recorder(1, reply).page, 5.0) is None


def test_a_recorder_is_read_whole(recorder: Callable[..., Recorder]) -> None:
    body = b"x" * 300_000
    assert fetch(recorder(1, answer(body)).page, 10.0) == body


# Forms of dumps


def test_torch_2_2_wrote_the_entries_alone_and_older_names() -> None:
    dump = dump_of([{"pg_id": 4, "seq_id": 7, "state": "completed"}], 3)
    assert dump is not None
    (entry,) = dump.entries
    assert (dump.rank, entry.group, entry.seq, entry.completed) == (3, "4", 7, True)
    assert (entry.operation, entry.sizes, entry.frame, entry.created) == ("", "", None, 0)


@pytest.mark.parametrize("data", [7, "text", None, {}, {"version": "2.9"}, {"entries": 3}])
def test_other_data_are_no_dump(data: object) -> None:
    assert dump_of(data, 0) is None


def only(**fields: object) -> CollectiveEntry:
    dump = dump_of({"entries": [{"collective_seq_id": 1, "process_group": ["g"], **fields}]}, 0)
    assert dump is not None
    return dump.entries[0]


def test_sizes_are_shown_to_a_bound() -> None:
    assert only(input_sizes=[[2, 3], 5, "x"]).sizes == "2x3,5,x"
    assert only(input_sizes=[[1] * 20] * 20).sizes == ",".join(["x".join("1" * 8)] * 8)
    assert only(input_dtypes=("Float",), input_sizes="none").sizes == ""
    assert only(input_dtypes=("Float",)).dtypes == "Float"
    assert only(profiling_name="nccl:" + "a" * 500).operation == "a" * 195
    assert only(time_created_ns=1_500_000_000).created == 1.5


def test_the_frame_is_the_innermost_of_the_trainings_own_code() -> None:
    def frame(file: str, line: int = 1) -> dict[str, object]:
        return {"name": "f", "filename": file, "line": line}

    own, library = frame("/me/train.py", 7), frame("/v/site-packages/torch/a.py")
    assert only(frames=[library, own, frame("/me/main.py")]).frame == "f (/me/train.py:7)"
    assert only(frames=[library, library]).frame == "f (/v/site-packages/torch/a.py:1)"
    assert only(frames=[library] * 64 + [own]).frame == "f (/v/site-packages/torch/a.py:1)"
    assert only(frames=[library] * 63 + [own]).frame == "f (/me/train.py:7)"
    assert only(frames=["x", own]).frame == "f (/me/train.py:7)"
    assert only(frames=[]).frame is None


@pytest.mark.parametrize("ranks", ["[0, 2, 5]", [0, "2", 5]])
def test_members_and_status_are_numbers_or_texts(ranks: object) -> None:
    status = {"last_enqueued_collective": "12", "last_completed_collective": 11}
    data = {
        "entries": [{"collective_seq_id": 1, "pg_id": 9, "process_group": ("tp", "tensor")}],
        "pg_config": {"tp": {"ranks": ranks, "desc": "other"}, "dp": {"ranks": ""}},
        "pg_status": {"9": status, "dp": {"last_enqueued_collective": True}},
    }
    dump = dump_of(data, 0)
    assert dump is not None
    assert dump.members == {"tp": (0, 2, 5)}
    assert dump.descriptions == {"tp": "tensor"}
    assert dump.status == {"tp": (12, 11), "dp": (0, 0)}


def test_of_several_hanging_groups_those_that_accuse_come_first_then_the_oldest() -> None:
    dumps = []
    for rank in range(3):
        groups = [("late", 9, True), ("early", 5, True), ("accuses", 8, rank != 1)]
        entries = [
            {
                "process_group": (name, name), "collective_seq_id": 1, "state": "started",
                "profiling_name": "nccl:all_reduce", "time_created_ns": at * 10**9,
            }
            for name, at, joined in groups
            if joined
        ]  # fmt: skip
        config = {name: {"desc": name, "ranks": "[0, 1, 2]"} for name, *_ in groups}
        dump = dump_of({"entries": entries, "pg_config": config}, rank)
        assert dump is not None
        dumps.append(dump)
    found = analyse(dumps)
    assert [each.group for each in found] == ["accuses", "early", "late"]
    assert [(each.missing, each.since) for each in found] == [((1,), 8.0), ((), 5.0), ((), 9.0)]


def test_a_world_size_that_no_job_has_names_no_ranks() -> None:
    dumps = [Dump(rank) for rank in range(2)]
    for dump in dumps:
        dump.descriptions["0"], dump.status["0"] = "default_pg", (4, 3)
    assert analyse(dumps, 4)[0].without_dump == (2, 3)
    (finding,) = analyse(dumps, 10**9)
    assert (finding.without_dump, finding.all_known, finding.waiting) == ((), False, (0, 1))


def test_of_a_rank_the_newest_dump_since_then_counts(tmp_path: Path) -> None:
    for number, at in enumerate((50.0, 200.0, 150.0)):
        folder = tmp_path / str(number)
        folder.mkdir()
        for rank in (3, 12):
            path = folder / f"comm_lib_trace_rank_{rank}"
            path.touch()
            os.utime(path, (at, at))
    (tmp_path / "0/comm_lib_trace_rank_7").symlink_to(tmp_path / "1/comm_lib_trace_rank_3")
    folders = [tmp_path / str(number) for number in range(3)]
    newest = {rank: tmp_path / f"1/comm_lib_trace_rank_{rank}" for rank in (3, 12)}
    assert find([*folders, tmp_path / "none"], [], [], since=150.0) == newest
    assert find(folders[:1], [], [], since=50.0) == {
        rank: tmp_path / f"0/comm_lib_trace_rank_{rank}" for rank in (3, 12)
    }
    assert find(folders, [], [], since=200.5) == {}
