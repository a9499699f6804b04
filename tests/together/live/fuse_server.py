"""A file server that can be stopped like a real one: a folder, read-only, over /dev/fuse.

`python fuse_server.py FOLDER MOUNT_POINT` mounts and serves until it is killed, which also
frees all that wait for it; SIGSTOP makes it a server that is away. While FOLDER holds a file named
.eio, reading fails. The protocol is that of linux/fuse.h, version 7.31: no library is needed, and
nothing is cached.
"""

import ctypes
import errno
import os
import signal
import stat
import struct
import sys
from collections.abc import Callable

LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE = 1, 2, 3, 14, 15, 18
INIT, OPENDIR, READDIR, RELEASEDIR, BATCH_FORGET = 26, 27, 28, 29, 42
HEADER = struct.Struct("<IIQQIIII")
DIRECT_IO = 1
FAULT = ".eio"
PR_SET_PDEATHSIG = 1


class Server:
    """Answers one request after the other. A node is a file at a path; `paths` has the paths by the
    nodes' numbers. As on NFS, the handle of a file that lost its path is stale."""

    def __init__(self, folder: str, device: int) -> None:
        self.device = device
        self.paths, self.files = ["", folder], [0, os.lstat(folder).st_ino]
        self.numbers = {(folder, self.files[1]): 1}
        self.calls: dict[int, Callable[[int, bytes], bytes]] = {
            INIT: self.init,
            LOOKUP: self.lookup,
            GETATTR: lambda node, _: struct.pack("<QII", 0, 0, 0) + self.attributes(node),
            OPEN: lambda node, _: self.opened(os.open(self.paths[node], os.O_RDONLY)),
            READ: self.read,
            RELEASE: self.release,
            OPENDIR: lambda node, _: self.opened(0),
            READDIR: self.list,
            RELEASEDIR: lambda node, _: b"",
        }

    def serve(self) -> None:
        while True:
            request = os.read(self.device, 1024 * 1024)
            _, call, unique, node, *_ = HEADER.unpack_from(request)
            if call in (FORGET, BATCH_FORGET):
                continue
            try:
                error, body = 0, self.calls[call](node, request[HEADER.size :])
            except KeyError:
                error, body = errno.ENOSYS, b""
            except OSError as problem:
                error, body = problem.errno or errno.EIO, b""
            os.write(self.device, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)

    def init(self, node: int, body: bytes) -> bytes:
        return struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 8, 8, 4096, 1, 0, 0, 0)

    def attributes(self, node: int) -> bytes:
        found = os.lstat(self.paths[node])
        if found.st_ino != self.files[node]:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        times = (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)
        seconds, rests = zip(*(divmod(each, 10**9) for each in times), strict=True)
        head = struct.pack("<6Q3I", found.st_ino, found.st_size, found.st_blocks, *seconds, *rests)
        return head + struct.pack("<7I", found.st_mode, 1, found.st_uid, found.st_gid, 0, 4096, 0)

    def lookup(self, node: int, body: bytes) -> bytes:
        number = self.number(os.path.join(self.paths[node], os.fsdecode(body.rstrip(b"\0"))))
        return struct.pack("<QQQQII", number, 0, 0, 0, 0, 0) + self.attributes(number)

    def number(self, path: str) -> int:
        file = os.lstat(path).st_ino
        if (path, file) not in self.numbers:
            self.numbers[path, file] = len(self.paths)
            self.paths.append(path)
            self.files.append(file)
        return self.numbers[path, file]

    def opened(self, handle: int) -> bytes:
        return struct.pack("<QII", handle, DIRECT_IO, 0)

    def read(self, node: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        if os.path.lexists(os.path.join(self.paths[1], FAULT)):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.pread(handle, size, offset)

    def release(self, node: int, body: bytes) -> bytes:
        os.close(struct.unpack_from("<Q", body)[0])
        return b""

    def list(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        listed = b""
        for place, name in enumerate(sorted(os.listdir(self.paths[node])), start=1):
            path, raw = os.path.join(self.paths[node], name), os.fsencode(name)
            kind = stat.S_IFMT(os.lstat(path).st_mode) >> 12
            entry = struct.pack("<QQII", self.number(path), place, len(raw), kind) + raw
            entry += bytes(-len(entry) % 8)
            if place > offset and len(listed) + len(entry) <= size:
                listed += entry
        return listed


def mount(folder: str, point: str) -> None:
    """Serve `folder` at `point`. Raises `OSError` where mounting is not permitted."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    system = ctypes.CDLL(None, use_errno=True)
    system.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody shall wait for it when the test is gone
    if system.mount(b"test", os.fsencode(point), b"fuse", 0, options.encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    print("mounted", flush=True)
    Server(folder, device).serve()


if __name__ == "__main__":
    try:
        mount(*sys.argv[1:])
    except OSError as problem:
        print(problem.strerror, flush=True)
