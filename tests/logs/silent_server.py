"""A file server that stops answering."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ldlm_monitor.logs.source.file_system import Disk, MountTable


class Server:
    """A network file system under `folder` that stops answering for some calls.

    A call that is held up reads a pipe in which nothing stands, as a call to a dead
    server stays in the system. `revive` ends that.
    `broken`: it answers that files cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.silent: set[str] = set()
        self.broken = False
        self.entered, self._in = os.pipe()
        self._gate, self._open = os.pipe()
        root = "22 1 254:0 / / rw - ext4 /dev/vda rw\n"
        self.table = MountTable(f"{root}36 22 0:51 / {folder} rw,noatime - nfs4 server:/logs rw\n")
        self.disk = Disk(stat=self.stat, open=self.open, pread=self.pread)

    def stat(self, path: Path) -> os.stat_result:
        self._answer("stat", path)
        return os.stat(path)

    def open(self, path: Path, flags: int) -> int:
        self._answer("open", path)
        return os.open(path, flags)

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        self._answer("pread", path)
        if self.broken and self.folder in path.parents:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.pread(descriptor, size, offset)

    def _answer(self, call: str, path: Path) -> None:
        where = Path(os.path.realpath(path))
        if call in self.silent and self.folder in (where, *where.parents):
            os.write(self._in, b".")
            os.read(self._gate, 1)

    def revive(self) -> None:
        self.silent.clear()
        os.close(self._open)

    def close(self) -> None:
        for descriptor in (self.entered, self._in, self._gate):
            os.close(descriptor)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "nfs")
    yield server
    server.close()
