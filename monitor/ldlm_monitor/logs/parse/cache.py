"""Keeps between starts what takes long to make of definitions: parsed YAML, Hyperscan databases.

Hyperscan runs a serialised database as it is, beyond a checksum: one that somebody else wrote
could do anything. So the folder must be the user's own, and closed to other writers.
"""

import hashlib
import logging
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

import hyperscan
import msgspec

from ldlm_monitor import __version__
from ldlm_monitor.logs.parse import definitions

MAX_FILES = 8
"""Sets of definitions kept (packaged ones, with `--formats` or without). A choice: more take half a
MiB of disk each, fewer are compiled again when a person changes between sets."""
DOCUMENTS = "documents"
"""The key of the packaged files' YAML; databases have a digest of their expressions."""
_DIGEST = 32  # bytes of SHA-256

log = logging.getLogger(__name__)


class Cache:
    """What was made of one set of definitions; `entries` is empty if nothing is kept.

    `made_of`: everything that the entries depend on. Without a usable folder `save` does nothing.
    """

    def __init__(self, made_of: Iterable[bytes]) -> None:
        self.entries: dict[str, bytes] = {}
        self._file: Path | None = None
        try:
            self._file = _folder() / digest(made_of)
            self.entries = _read(self._file)
        except OSError as error:
            log.debug("compiled definitions are not read from a cache: %s", error)
        self._kept = dict(self.entries)

    def save(self) -> None:
        """Write the entries, if any is new."""
        if self._file is None or self.entries == self._kept:
            return
        try:
            _write(self._file, msgspec.msgpack.encode(self.entries))
        except OSError as error:
            log.debug("compiled definitions are not kept: %s", error)


def cache_of(files: Sequence[Path]) -> Cache:
    """The cache of the packaged definitions and `files`. Raises OSError if one cannot be read."""
    probe = hyperscan.Database()
    probe.compile(expressions=[b"a"], ids=[0], elements=1, flags=[0])
    # `info` has Hyperscan's version and the processor's features, on which databases depend.
    versions = f"{__version__} {probe.info()!r} {os.uname().machine}"
    texts = (path.read_bytes() for path in (*definitions.packaged_files(), *files))
    return Cache((versions.encode(), *texts))


def packaged_definitions(kept: dict[str, bytes]) -> list[tuple[Path, definitions.Definitions]]:
    """The packaged files; their YAML is taken from `kept`, or added to it."""
    paths = definitions.packaged_files()
    if DOCUMENTS not in kept:
        kept[DOCUMENTS] = msgspec.msgpack.encode([*map(definitions.document, paths)])
    found = msgspec.msgpack.decode(kept[DOCUMENTS])
    return list(zip(paths, map(definitions.load, paths, found), strict=True))


def digest(parts: Iterable[bytes]) -> str:
    """The SHA-256 of the parts and their lengths, in this order, as hexadecimal digits."""
    return hashlib.sha256(b"".join(b"%d:" % len(part) + part for part in parts)).hexdigest()


def _folder() -> Path:
    """The folder, made if need be. Raises OSError unless only the user can write to it."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    # Root with another user's HOME must not make a folder there that its owner cannot use.
    above = base if base.exists() else base.parent
    if not base.is_absolute() or above.stat().st_uid != os.geteuid():
        raise PermissionError(f"{base} is not an absolute path of this user's")
    folder = base / "ldlm-monitor"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not ours or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{folder} is no folder of this user's, or others may write to it")
    return folder


def _read(file: Path) -> dict[str, bytes]:
    """The entries of a file; none if it is missing or damaged, as after a crash or a full disk."""
    data = file.read_bytes() if file.exists() else b""
    if hashlib.sha256(data[_DIGEST:]).digest() != data[:_DIGEST]:
        return {}
    return msgspec.msgpack.decode(data[_DIGEST:], type=dict[str, bytes])


def _write(file: Path, content: bytes) -> None:
    """Replace the file in one step, and delete the oldest files beyond `MAX_FILES`."""
    part = file.with_suffix(f".{os.getpid()}")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(hashlib.sha256(content).digest() + content)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    files = sorted(file.parent.iterdir(), key=lambda each: each.stat().st_mtime_ns)
    for old in files[:-MAX_FILES]:
        old.unlink(missing_ok=True)
