"""Writes a fix to disk so that it can be taken back, byte for byte, whatever happens.

Beside the files stands a folder, `.ldlm-doctor`, with a folder for each fix. Before the first file
is touched, that holds each file as it was and a manifest with the hashes of before and after. So
after a crash every file is one of the two, and a rollback compares the hashes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel, ValidationError

from ldlm_doctor.collect import STATE_FOLDER
from ldlm_doctor.errors import DoctorError

_MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Change:
    """A file's bytes, before and after."""

    path: Path
    before: bytes
    after: bytes


class _Entry(BaseModel, frozen=True):
    path: str
    """Relative to the folder that holds the state, so that the tree may be moved."""
    before: str
    after: str
    mode: int
    modified_ns: int
    backup: str


class _Manifest(BaseModel, frozen=True):
    version: int = 1
    done: bool
    files: tuple[_Entry, ...]


def apply(root: Path, changes: Sequence[Change]) -> None:
    """Writes the changes to files below `root`; all of them, or none.

    Raises `DoctorError` where a file is no longer what was read, has other names (hard links), or
    cannot be written, and where an earlier fix was interrupted.
    """
    with _locked(root, create=True) as state:
        last = _fixes(state)[-1:]
        if last and not _load(last[0]).done:
            raise DoctorError(
                "an earlier fix was interrupted",
                where=str(state),
                remedy=f"run ldlm-monitor doctor --rollback {root} first",
            )
        for change in changes:
            _check_unchanged(change)
        number = int(last[0].name) + 1 if last else 1
        folder = state / f"{number:04d}"
        try:
            _write(root, folder, changes)
        except OSError as error:
            if (folder / _MANIFEST).exists():
                _restore(root, folder)
            else:
                shutil.rmtree(folder, ignore_errors=True)
            _remove_if_empty(state)
            raise DoctorError(
                f"cannot be written ({error.strerror}); every file is as it was",
                where=str(error.filename or root),
                remedy="check its permissions and the room on the disk",
            ) from error


def rollback(root: Path, of: Path | None = None) -> list[Path]:
    """Takes the last fix back, also one that was interrupted; returns the files put back.

    With `of`, the last one that changed this file. Raises `DoctorError` where there is none, or
    where a file was changed since.
    """
    none = DoctorError(
        "there is no fix to take back", where=str(of or root), remedy="name what was given to --fix"
    )
    if not (root / STATE_FOLDER).is_dir():
        raise none
    with _locked(root, create=False) as state:
        fixes = [
            fix
            for fix in _fixes(state)
            if of is None or of in (root / entry.path for entry in _load(fix).files)
        ]
        if of is not None and not fixes:
            raise none
        restored = _restore(root, fixes[-1]) if fixes else []
        _remove_if_empty(state)
    return restored


def apply_below(named: Sequence[str], changes: Sequence[Change]) -> None:
    """As `apply`, each change below the named folder that holds its file, or beside that file."""
    by_root: dict[Path, list[Change]] = {}
    roots = [path if path.is_dir() else path.parent for path in _real(named)]
    for change in changes:
        holding = (root for root in roots if change.path.is_relative_to(root))
        by_root.setdefault(next(holding, change.path.parent), []).append(change)
    for root, below in by_root.items():
        apply(root, below)


def rollback_named(named: Sequence[str]) -> Iterator[tuple[Path, list[Path]]]:
    """As `rollback`, of each named folder or file; with what was put back."""
    for path in _real(named):
        root, of = (path, None) if path.is_dir() else (path.parent, path)
        yield path, rollback(root, of)


def _real(named: Sequence[str]) -> list[Path]:
    return list(dict.fromkeys(Path(os.path.realpath(path)) for path in named))


def _write(root: Path, folder: Path, changes: Sequence[Change]) -> None:
    folder.mkdir()
    entries = []
    for number, change in enumerate(changes):
        status = change.path.stat()
        (folder / str(number)).write_bytes(change.before)
        _sync(folder / str(number))
        entries.append(
            _Entry(
                path=os.path.relpath(change.path, root),
                before=_hash(change.before),
                after=_hash(change.after),
                mode=status.st_mode,
                modified_ns=status.st_mtime_ns,
                backup=str(number),
            )
        )
    _save(folder, _Manifest(done=False, files=tuple(entries)))
    for change in changes:
        _replace(change.path, change.after, like=change.path)
    _save(folder, _Manifest(done=True, files=tuple(entries)))


def _restore(root: Path, folder: Path) -> list[Path]:
    """Every file as it was; all are looked at before the first is touched."""
    manifest = _load(folder)
    pending = []
    for entry in manifest.files:
        path = root / entry.path
        now = _hash(path.read_bytes()) if path.exists() else None
        if now == entry.before:
            continue
        if now not in (entry.after, None):
            raise DoctorError(
                "was changed since the fix; nothing was put back",
                where=str(path),
                remedy=f"what it was stands in {folder / entry.backup}",
            )
        pending.append((path, entry))
    for path, entry in pending:
        backup = folder / entry.backup
        _replace(path, backup.read_bytes(), like=path if path.exists() else backup)
        path.chmod(entry.mode & 0o7777)
    for entry in manifest.files:
        path = root / entry.path
        _forget(_temporary(path))
        if path.stat().st_mtime_ns != entry.modified_ns:
            os.utime(path, ns=(entry.modified_ns, entry.modified_ns))
    (folder / _MANIFEST).unlink()
    shutil.rmtree(folder)
    return [path for path, _ in pending]


def _check_unchanged(change: Change) -> None:
    status = change.path.stat()
    if status.st_nlink > 1:
        raise DoctorError(
            "has several names (hard links), which a fix would part",
            where=str(change.path),
            remedy="copy it, or fix it by hand",
        )
    if change.path.read_bytes() != change.before:
        raise DoctorError(
            "was changed while the doctor looked at it", where=str(change.path), remedy="try again"
        )


def _replace(path: Path, content: bytes, *, like: Path) -> None:
    """New bytes under the old name, at once; mode, owner and extended attributes stay."""
    temporary = _temporary(path)
    status = like.stat()
    try:
        temporary.write_bytes(content)
        shutil.copystat(like, temporary)
        os.utime(temporary)
        with contextlib.suppress(PermissionError):
            os.chown(temporary, status.st_uid, status.st_gid)
            temporary.chmod(status.st_mode & 0o7777)
        _sync(temporary)
        os.replace(temporary, path)
    except OSError:
        _forget(temporary)
        raise
    _sync(path.parent)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.ldlm-doctor")


def _forget(temporary: Path) -> None:
    with contextlib.suppress(OSError):
        temporary.unlink()


def _fixes(state: Path) -> list[Path]:
    """The folders of fixes, the oldest first; what has no manifest never touched a file."""
    return sorted(path.parent for path in state.glob(f"[0-9]*/{_MANIFEST}"))


def _load(folder: Path) -> _Manifest:
    try:
        return _Manifest.model_validate_json((folder / _MANIFEST).read_bytes())
    except ValidationError as error:
        raise DoctorError(
            "is damaged",
            where=str(folder / _MANIFEST),
            remedy="the files as they were stand beside it",
        ) from error


def _save(folder: Path, manifest: _Manifest) -> None:
    new = folder / f"{_MANIFEST}.new"
    new.write_text(json.dumps(manifest.model_dump(), indent=1))
    _sync(new)
    os.replace(new, folder / _MANIFEST)
    _sync(folder)


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF):  # some file systems sync no folder
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(root: Path, *, create: bool) -> Iterator[Path]:
    """The folder of the state, for one process at a time."""
    state = root / STATE_FOLDER
    try:
        if create:
            state.mkdir(exist_ok=True)
            (state / ".gitignore").write_text("*\n")
        descriptor = os.open(state, os.O_RDONLY)
    except OSError as error:
        raise DoctorError(
            f"cannot be written ({error.strerror})",
            where=str(state),
            remedy="a fix keeps there what it changes: make the folder writable",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for leftover in state.glob("[0-9]*"):
            if not (leftover / _MANIFEST).exists():
                shutil.rmtree(leftover)
        yield state
    except BlockingIOError as error:
        raise DoctorError(
            "another fix is at work here", where=str(state), remedy="wait for its end"
        ) from error
    finally:
        os.close(descriptor)


def _remove_if_empty(state: Path) -> None:
    if {path.name for path in state.iterdir()} <= {".gitignore"}:
        (state / ".gitignore").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            state.rmdir()
