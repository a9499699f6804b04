"""Asking NCCL's RAS. No NCCL was at hand: a real TCP server speaks as the user guide documents.

The JSON is of the guide's own examples (troubleshooting/ras).
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from ldlm_monitor.probe.nccl_ras import RasError, address_of, ask, describe, suspects_of

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
    """A server that takes the documented commands; `answer=None`: one before 2.28.7."""

    def __init__(self, answer: str | None, *, silent: bool = False) -> None:
        self._answer, self._silent = answer, silent
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = self._socket.getsockname()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection, connection.makefile("rb") as lines:
            body = "Job summary\n===========\n"
            for line in lines:
                command = line.decode("ascii").strip()
                if self._silent:
                    self._over.wait(30)
                    return
                if command.startswith("CLIENT PROTOCOL "):
                    answer = "SERVER PROTOCOL 2\n"
                elif command.startswith("TIMEOUT "):
                    answer = "OK\n"
                elif command == "SET FORMAT json" and self._answer is not None:
                    body, answer = self._answer, "OK\n"
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

    def serve(answer: str | None, **how: bool) -> Ras:
        servers.append(Ras(answer, **how))
        return servers[-1]

    yield serve
    for server in servers:
        server.close()


def test_a_rank_that_is_missing_is_a_suspect(ras) -> None:
    missing = [rank(1, unresponsive=True), rank(2, considered_dead=True), rank(3)]
    suspects = ask(ras(in_json([rank(0)], missing)).address)
    assert [(each.rank, each.pid, each.what) for each in suspects] == [
        (1, 1524345, "unresponsive"),
        (2, 1524346, "dead"),
        (3, 1524347, "missing"),
    ]
    assert describe(suspects) == "RAS: rank 1 unresponsive, rank 2 dead, rank 3 missing"


def test_the_ranks_that_are_behind_most_are_suspects(ras) -> None:
    ranks = [rank(0, 11), rank(1, 11), rank(2, 10), rank(3, 11)]
    (suspect,) = ask(ras(in_json(ranks, [])).address)
    assert (suspect.rank, suspect.what) == (2, "behind")


def test_a_rank_with_an_error_of_its_communicator_is_a_suspect(ras) -> None:
    (suspect,) = ask(ras(in_json([rank(0, async_error=6), rank(1)], [])).address)
    assert (suspect.rank, suspect.what) == (0, "failed")


def test_that_all_is_well_is_said_to_prove_nothing(ras) -> None:
    suspects = ask(ras(in_json([rank(0)], [])).address)
    assert suspects == []
    assert "proves nothing" in describe(suspects)


def test_a_server_that_falls_silent_costs_no_more_than_was_granted(ras) -> None:
    with pytest.raises(RasError, match="timed out"):
        ask(ras(None, silent=True).address, seconds=0.2)


def test_a_server_that_has_no_json_is_not_understood(ras) -> None:
    with pytest.raises(RasError):
        ask(ras(None).address)


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
