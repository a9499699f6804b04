"""Asking NCCL's RAS. No NCCL was at hand: a real TCP server answers as the user guide documents.

The texts and the JSON are of the guide's own examples (troubleshooting/ras).
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from ldlm_monitor.host.probe.nccl_ras import RasError, address_of, ask, describe, suspects_of

HEALTHY = """
Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         8         4         1         4        32   RUNNING      OK
"""
INCOMPLETE = """
Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data
"""
DEAD = """
DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21
"""
MISMATCH = """
#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  26 ranks have launched up to operation 6650
  6 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210
"""
STATUS = {
    "init_state": 0,
    "async_error": 0,
    "finalize_called": False,
    "destroy_flag": False,
    "abort_flag": False,
}


def rank(number: int, launched: int = 10, **status: object) -> dict[str, object]:
    return {
        "rank": number,
        "host": "172.16.64.245",
        "pid": 1524344 + number,
        "cuda_dev": number,
        "nvml_dev": number,
        "status": {**STATUS, **status},
        "collective_counts": {"Broadcast": 1, "AllReduce": launched},
    }


def in_json(ranks: list[dict[str, object]], missing: list[dict[str, object]]) -> str:
    communicator = {
        "hash": "0xae94423cfbb2ef4a",
        "size": len(ranks) + len(missing),
        "ranks_count": len(ranks),
        "missing_ranks_count": len(missing),
        "ranks": ranks,
        "missing_ranks": missing,
    }
    return json.dumps(
        {
            "nccl_version": "2.29.1",
            "timestamp": "2025-12-19 13:06:53",
            "communicators_count": 1,
            "communicators": [communicator],
            "ras": {"collection_time_sec": 0.0, "timeouts_count": 0},
        },
        indent=2,
    )


class Ras:
    """A server that takes the documented commands; `json=None`: one before 2.28.7."""

    def __init__(self, text: str, json: str | None, *, silent: bool = False) -> None:
        self._text, self._json, self._silent = text, json, silent
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = self._socket.getsockname()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection, connection.makefile("rb") as lines:
            body = self._text
            for line in lines:
                command = line.decode("ascii").strip()
                if self._silent:
                    self._over.wait(30)
                    return
                if command.startswith("CLIENT PROTOCOL "):
                    answer = "SERVER PROTOCOL 2\n"
                elif command.startswith("TIMEOUT "):
                    answer = "OK\n"
                elif command == "SET FORMAT json" and self._json is not None:
                    body, answer = self._json, "OK\n"
                elif command in ("STATUS", "VERBOSE STATUS"):
                    connection.sendall(body.encode())
                    return
                else:
                    answer = f"ERROR: Unknown command {command}\n"
                connection.sendall(answer.encode())

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()


@pytest.fixture
def ras() -> Iterator[Callable[..., Ras]]:
    servers: list[Ras] = []

    def serve(text: str, json: str | None = None, **how: bool) -> Ras:
        servers.append(Ras(text, json, **how))
        return servers[-1]

    yield serve
    for server in servers:
        server.close()


def test_an_old_server_is_understood_in_text(ras) -> None:
    silent, missing = suspects = ask(ras(INCOMPLETE).address)
    assert (silent.pid, silent.host, silent.gpu) == (3487984, "172.16.64.213", "5")
    assert (silent.what, missing.rank, missing.what) == ("unresponsive", 21, "missing")
    assert describe(suspects) == (
        "RAS: process 3487984 on 172.16.64.213 unresponsive, rank 21 missing"
    )


def test_a_server_that_can_answers_in_json(ras) -> None:
    missing = {**rank(1), "status": {"unresponsive": True, "considered_dead": False}}
    (suspect,) = ask(ras("not asked for", in_json([rank(0)], [missing])).address)
    assert (suspect.rank, suspect.pid, suspect.what) == (1, 1524345, "unresponsive")


def test_a_process_that_is_dead_is_told_as_such(ras) -> None:
    assert ask(ras(DEAD).address)[0].what == "dead"
    dead = {**rank(1), "status": {"unresponsive": False, "considered_dead": True}}
    assert ask(ras("", in_json([rank(0)], [dead])).address)[0].what == "dead"


def test_the_ranks_that_are_behind_most_are_suspects(ras) -> None:
    assert [each.rank for each in ask(ras(MISMATCH).address)] == [0, 2]
    ranks = [rank(0, 11), rank(1, 11), rank(2, 10), rank(3, 11)]
    (suspect,) = ask(ras("", in_json(ranks, [])).address)
    assert (suspect.rank, suspect.what) == (2, "behind")


def test_a_rank_with_an_error_of_its_communicator_is_a_suspect(ras) -> None:
    (suspect,) = ask(ras("", in_json([rank(0, async_error=6), rank(1)], [])).address)
    assert (suspect.rank, suspect.what) == (0, "failed")


def test_that_all_is_well_is_said_to_prove_nothing(ras) -> None:
    for suspects in (ask(ras(HEALTHY).address), ask(ras("", in_json([rank(0)], [])).address)):
        assert suspects == []
        assert "proves nothing" in describe(suspects)


def test_a_server_that_falls_silent_costs_no_more_than_was_granted(ras) -> None:
    with pytest.raises(RasError, match="timed out"):
        ask(ras("", silent=True).address, seconds=0.2)


def test_nobody_there_is_said(ras) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()
    with pytest.raises(RasError, match="refused"):
        ask(address)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "SERVER PROTOCOL 2\nOK\nOK\n{\n",
        'SERVER PROTOCOL 2\n{"communicators": 1}',
        "SERVER PROTOCOL 2\n" + '{"communicators": ' + "[" * 100_000,
    ],
)
def test_what_is_no_answer_of_ras_is_refused(answer: str) -> None:
    with pytest.raises(RasError):
        suspects_of(answer)


def test_addresses_are_read_as_nccl_reads_them() -> None:
    assert address_of("node1:28029") == ("node1", 28029)
    assert address_of("[::1]:5") == ("::1", 5)
    assert address_of("node1") is None


@pytest.mark.parametrize(("seconds", "timeout"), [(4.0, 2), (2.6, 2), (2.4, 1), (1.0, 1), (60, 2)])
def test_ras_waits_for_silent_processes_two_seconds_or_less_than_we_wait(
    seconds: float, timeout: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked: list[bytes] = []

        def serve() -> None:
            client, _ = server.accept()
            with client:
                asked.append(client.recv(4096))
                client.sendall(b"SERVER PROTOCOL 2\nOK\n")

        thread = threading.Thread(target=serve)
        thread.start()
        assert ask(server.getsockname(), seconds) == []
        thread.join()
    lines = asked[0].decode().splitlines()
    assert lines == [
        "CLIENT PROTOCOL 2", f"TIMEOUT {timeout}", "SET FORMAT json", "VERBOSE STATUS",
    ]  # fmt: skip


def test_ranks_are_behind_the_median_and_failed_by_their_own_status() -> None:
    header = "SERVER PROTOCOL 2\nOK\n"
    ranks = [rank(0, 12), rank(1, 10), rank(2, 12, abort_flag=True), rank(3, 9, async_error=7)]
    found = suspects_of(header + in_json(ranks, []))
    assert [(each.rank, each.what) for each in found] == [
        (1, "behind"), (2, "failed"), (3, "behind"),
    ]  # fmt: skip
    assert describe(found) == "RAS: ranks 1,3 behind, rank 2 failed"
    (missing,) = suspects_of(header + in_json([rank(0)], [rank(9)]))
    assert (missing.rank, missing.what, missing.gpu) == (9, "missing", "9")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (" h:1 ", ("h", 1)), (":5", ("localhost", 5)), ("h:65535", ("h", 65535)),
        ("h:65536", None), ("h:", None), ("h:x", None), ("[fe80::1]:7", ("fe80::1", 7)),
    ],
)  # fmt: skip
def test_an_address_of_ras_has_a_port_of_tcp(text: str, address: tuple[str, int] | None) -> None:
    assert address_of(text) == address
