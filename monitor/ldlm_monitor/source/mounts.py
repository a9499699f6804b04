"""Which file system a path leads to, found out without asking any that may not answer."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

NETWORK_FILE_SYSTEMS = frozenset(
    (
        "9p",
        "afs",
        "autofs",
        "beegfs",
        "ceph",
        "cifs",
        "davfs",
        "fhgfs",
        "fuse",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb3",
        "smbfs",
        "virtiofs",
        "wekafs",
    )
)
"""On these another machine's writes ring nothing here, and a dead server answers never."""
MOUNT_SECONDS = 5.0
"""What is mounted is looked up anew so often."""
LINKS = 40
"""So many symbolic links the system follows in one path, path_resolution(7)."""
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system: `device` is `major:minor`, one for all places of the same one."""

    device: str = ""
    point: str = "/"
    kind: str = ""

    @property
    def remote(self) -> bool:
        """Whether it is on a network."""
        return self.kind in NETWORK_FILE_SYSTEMS

    def __str__(self) -> str:
        return f"{self.point} ({self.kind})" if self.kind else self.point


class MountTable:
    """What is mounted where, as /proc/self/mountinfo tells it (proc(5)); `text` is that file's.

    Field 3 is the device, field 5 the mount point, and the type follows ` - `.
    `fuse.sshfs` counts as `fuse`.
    """

    def __init__(self, text: str) -> None:
        self._mounts: dict[str, Mount] = {}
        for line in text.splitlines():
            before, _, after = line.partition(" - ")
            fields = before.split(" ")
            if len(fields) > 4 and after:
                point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
                kind = after.split(" ", 1)[0].partition(".")[0]
                self._mounts[point] = Mount(fields[2], point, kind)
        self.has_remote = any(mount.remote for mount in self._mounts.values())

    def of(self, path: Path) -> Mount:
        """The mount that `path` leads to.

        Symbolic links are followed by hand, and no further than to the first mount on a
        network, so that a server that is away holds up nobody. An empty `Mount` where
        the system does not tell.
        """
        real, mount = self._root()
        pending = _parts(os.path.join(_working_folder(), path))
        links = 0
        while pending and not mount.remote and links <= LINKS:
            part = pending.pop()
            if part == "..":
                real, mount = self._above(real)
                continue
            step = os.path.join(real, part)
            below = self._mounts.get(step, mount)
            target = None if below.remote else _link(step)
            if target is None:
                real, mount = step, below
                continue
            links += 1
            pending += _parts(target)
            if target.startswith("/"):
                real, mount = self._root()
        return mount

    def _root(self) -> tuple[str, Mount]:
        return "/", self._mounts.get("/", Mount())

    def _above(self, real: str) -> tuple[str, Mount]:
        parent = folder = os.path.dirname(real)
        while folder not in self._mounts and folder != "/":
            folder = os.path.dirname(folder)
        return parent, self._mounts.get(folder, Mount())


def read_mounts() -> MountTable:
    """What is mounted now; empty where the system does not tell."""
    try:
        text = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    except OSError:
        text = ""
    return MountTable(text)


def file_system(folder: Path) -> str:
    """The type of the file system that holds `folder`; empty where the system does not tell."""
    return read_mounts().of(folder).kind


def _parts(path: str | Path) -> list[str]:
    """The parts of a path, the last one first."""
    return [part for part in reversed(os.fspath(path).split("/")) if part not in ("", ".")]


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:  # no link, or nothing there
        return None


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # deleted
        return "/"
