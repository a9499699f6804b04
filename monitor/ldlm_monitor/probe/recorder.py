"""PyTorch's flight recorder, asked of a living rank that opened it (`flight_recorder=True`).

The answer is JSON in the form of a dump file. The server is PyTorch's own and runs in
C++ (`_WorkerServer`, handler `fr_trace_json`, seen with 2.13), so it answers while the
GIL is held.
"""

from __future__ import annotations

import http.client
import socket
import struct

from ldlm_monitor.probe.heartbeat import Page, is_process

MAX_BYTES = 64 * 1024 * 1024
"""As much as a dump file may have: 2,000 entries with stacks are a few MiB."""
_PATH = "/handler/fr_trace_json"
_PEER = struct.Struct("3i")


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket of which the kernel says that this process made it."""

    def __init__(self, path: str, pid: int, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path
        self._pid = pid

    def connect(self) -> None:
        """Connect, or raise `OSError`."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
        peer = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        if _PEER.unpack(peer)[0] != self._pid:
            raise ConnectionRefusedError("the socket is another process's")


def fetch(page: Page, seconds: float) -> bytes | None:
    """The rank's flight recorder as JSON, within about `seconds`; None: not available."""
    if not page.recorder or page.status != "running" or not is_process(page):
        return None
    connection = _UnixConnection(page.recorder, page.pid, seconds)
    try:
        connection.request("POST", _PATH)
        answer = connection.getresponse()
        data = answer.read(MAX_BYTES + 1)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return data if answer.status == 200 and len(data) <= MAX_BYTES else None
