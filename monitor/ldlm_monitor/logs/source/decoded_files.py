"""Compressed and converted files, read as the text that they hold.

The functions `..._decoded` replace the system's calls on files (in `file_system.Disk`). For
a compressed or converted file, recognised by its first bytes, they give decoded bytes, and the
number of them as the size. So every reader gets text, and positions count decoded bytes.

A file is decoded forwards; a read further back than `KEPT_BYTES` decodes the file from the
start again. A file that is being written is read as far as it can be decoded at present.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from ldlm_monitor.base.text.format import byte_size
from ldlm_monitor.logs.source.decoders import HEAD_BYTES, Form, form_of, is_begun

PIECE_BYTES = 16 * 1024
"""Undecoded bytes of one step. A choice: longer ones lose more at damage, shorter are slower."""
OUT_BYTES = 64 * 1024
"""The most decoded bytes of one step. A choice: more cost memory, fewer take more steps."""
KEPT_BYTES = 64 * 1024
"""Decoded bytes that are kept behind the reading position, for fingerprints, which read the last
KiB. A choice: fewer would make reads further back decode the file again, more cost memory."""
DECODED_BYTES = 16 * 1024**3
"""The most bytes that are decoded of a file, against files made to exhaust time. A choice: so many
take about a minute, and no log has nearly as many."""
WINDOW_BYTES = 1024
"""Bytes of the undecoded file that are compared, at its start and before the reading position, to
detect that it was rewritten: as many as in `file_identity`."""
REMEMBERED_SIZES = 4096
"""Files whose decoded size is kept. A choice: more cost memory, fewer are decoded twice."""


class _Stream:
    """Decodes a file from its start.

    The undecoded bytes are `held`, then those of `read(size, offset)`. `at`: how many undecoded
    bytes there were so far; `first` and `last`: the first and last KiB of those that `read` gave.
    `trouble`: why nothing more can be decoded; empty if nothing is wrong.
    """

    def __init__(self, form: Form, read: Callable[[int, int], bytes], held: bytes = b"") -> None:
        self.at = len(held)
        self.trouble = ""
        self.first = self.last = b""
        self._form = form
        self._read = read
        self._held = held
        self._begun = b""  # the start of the next member, too short to recognise its form
        self._decoder = form.decoder()
        self._left = DECODED_BYTES

    @property
    def loss(self) -> str:
        """Why the decoded bytes are not the whole content; empty if they are."""
        is_cut = self._form.ends and self.at > 0 and not (self._decoder.eof or self.trouble)
        cut = f"its end is missing: the {self._form.name} is cut at byte {self.at}"
        return cut if is_cut else self.trouble

    def more(self) -> bytes:
        """The next decoded bytes; empty if the file has no more at present."""
        while not self.trouble:
            if self._decoder.eof and not self._next_member():
                break
            raw = self._take() if self._decoder.needs_input else b""
            if not raw and self._decoder.needs_input:
                break
            if found := self._decode(raw):
                return found
        return b""

    def _decode(self, raw: bytes) -> bytes:
        try:
            found = self._decoder.decompress(raw, OUT_BYTES)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - each library raises its own errors
            self.trouble = f"damaged {self._form.name} near byte {self.at} ({error})"
            return b""
        self._left -= len(found)
        if self._left < 0:
            self.trouble = f"only the first {byte_size(DECODED_BYTES)} that it holds are read"
            return b""
        return found

    def _take(self) -> bytes:
        if self._held:
            raw, self._held = self._held, b""
            return raw
        raw = self._read(PIECE_BYTES, self.at)
        self.at += len(raw)
        if len(self.first) < WINDOW_BYTES:
            self.first = (self.first + raw)[:WINDOW_BYTES]
        self.last = (self.last + raw)[-WINDOW_BYTES:]
        return raw

    def _next_member(self) -> bool:
        """Begin the next compressed stream, as some writers append several; False if none comes."""
        raw, self._begun = self._begun or self._decoder.unused_data, b""
        while not (raw := raw.lstrip(b"\0")) or len(raw) < HEAD_BYTES:  # NULs pad tape blocks
            if not (piece := self._take()):
                break
            raw += piece
        if not raw:
            return False
        form = form_of(raw)
        if form is None and is_begun(raw):
            self._begun = raw
            return False
        if form is None or form.name != self._form.name:
            self.trouble = f"what follows the {self._form.name} before byte {self.at} is other data"
            return False
        self._decoder = form.decoder()
        self._held = raw
        return True


class _Text:
    """Decodes a compressed file, and then its content if that is UTF-16 or a container's log."""

    def __init__(self, form: Form, read: Callable[[int, int], bytes], held: bytes = b"") -> None:
        self.file = _Stream(form, read, held)
        self._inner: _Stream | None = None
        self._is_known = not form.ends

    def more(self) -> bytes:
        if self._inner is not None:
            return self._inner.more()
        found = self.file.more()
        if found and not self._is_known:
            self._is_known = True
            form = form_of(found, compressed=False)
            if form is not None:
                self._inner = _Stream(form, lambda _size, _at: self.file.more(), found)
                return self._inner.more()
        return found


class _DecodedFile:
    """The decoded bytes of an open file, as a window that moves forwards."""

    def __init__(self, descriptor: int, form: Form) -> None:
        self._descriptor = descriptor
        self._form = form
        self._version = (-1, -1)
        self.trouble = ""
        self._restart()

    def _restart(self) -> None:
        self._text = _Text(self._form, self._raw)
        self._window = bytearray()
        self._start = 0
        self._head = b""

    def _raw(self, size: int, offset: int) -> bytes:
        return os.pread(self._descriptor, size, offset)

    def read(self, size: int, offset: int) -> bytes:
        if offset + size <= len(self._head):
            return self._head[offset : offset + size]
        if offset < self._start:
            self._restart()
        window, end = self._window, offset + size
        while self._start + len(window) < end and (piece := self._text.more()):
            if len(self._head) < WINDOW_BYTES:
                self._head = (self._head + piece)[:WINDOW_BYTES]
            window += piece
            passed = min(max(offset - KEPT_BYTES - self._start, 0), len(window))
            del window[:passed]
            self._start += passed
        at = offset - self._start
        return bytes(window[at : at + size])

    def is_same(self) -> bool:
        """Whether the file still has the decoded bytes; compares only if size or mtime changed."""
        status, seen = os.fstat(self._descriptor), self._text.file
        version = status.st_size, status.st_mtime_ns
        if version == self._version:
            return True
        self._version = version
        window = self._raw(len(seen.last), seen.at - len(seen.last))
        return window == seen.last and self._raw(len(seen.first), 0) == seen.first

    def size(self) -> int:
        """The number of decoded bytes; decodes the whole file if it has changed. Sets `trouble`."""
        status = os.fstat(self._descriptor)
        last = hash(self._raw(WINDOW_BYTES, max(0, status.st_size - WINDOW_BYTES)))
        key = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, last
        if key not in _sizes:
            text = _Text(self._form, self._raw)
            _sizes[key] = sum(map(len, iter(text.more, b""))), text.file.loss
            if len(_sizes) > REMEMBERED_SIZES:
                del _sizes[next(iter(_sizes))]
        size, self.trouble = _sizes[key]
        return size


_sizes: dict[tuple[int, ...], tuple[int, str]] = {}
"""Decoded size and trouble, by device, inode, size, mtime (ns) and last KiB of the undecoded file:
a deleted file's inode is given to another one, and programs that compress keep the log's mtime."""
_files: dict[int, _DecodedFile] = {}
"""Decoders by descriptor. Needs no lock: a descriptor is used by one thread at a time."""


def open_decoded(path: Path, flags: int) -> int:
    """open(2), which also recognises the form. Raises `OSError` (ENOTSUP: no decoder installed)."""
    descriptor = os.open(path, flags)
    _files.pop(descriptor, None)  # an earlier file had this number
    try:
        _recognise(descriptor, os.pread(descriptor, HEAD_BYTES, 0))
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            os.close(descriptor)
            raise
        # A folder or a pipe, which the caller detects with fstat(2).
    return descriptor


def close_decoded(descriptor: int) -> None:
    """close(2)."""
    _files.pop(descriptor, None)
    os.close(descriptor)


def read_decoded(descriptor: int, size: int, offset: int) -> bytes:
    """pread(2), of the decoded bytes; none of a file too short to recognise its form."""
    file = _current(descriptor)
    if file is None:
        data = os.pread(descriptor, size, offset)
        if offset or not _recognise(descriptor, data):
            waits = not offset and data and is_begun(data)
            return b"" if waits and os.fstat(descriptor).st_size == len(data) else data
        file = _files[descriptor]
    return file.read(size, offset)


def fstat_decoded(descriptor: int) -> os.stat_result:
    """fstat(2), with the number of decoded bytes as the size."""
    status, file = os.fstat(descriptor), _current(descriptor)
    if file is None:
        return status
    fields = list(status)
    fields[stat.ST_SIZE] = file.size()
    times = {name: getattr(status, name) for name in ("st_atime_ns", "st_mtime_ns", "st_ctime_ns")}
    return os.stat_result(fields, times | {"st_mtime": status.st_mtime})


def seek_decoded(descriptor: int, offset: int, how: int) -> int:
    """lseek(2). Raises `OSError` (EINVAL) for a decoded file, whose holes cannot be found."""
    if descriptor in _files:
        raise OSError(errno.EINVAL, "not in a decoded file")
    return os.lseek(descriptor, offset, how)


def is_decoded(descriptor: int) -> bool:
    """Whether the descriptor gives decoded bytes."""
    return descriptor in _files


def trouble(descriptor: int) -> str:
    """Why `fstat_decoded` could not decode the file to its end; empty if it could."""
    file = _files.get(descriptor)
    return "" if file is None else file.trouble


def pieces(read: Callable[[int], bytes], size: int) -> Iterator[bytes]:
    """The decoded bytes of a stream; `read(size)` returns at most `size` of its next bytes.

    Raises `OSError`: EIO where a stream is damaged or cut, ENOTSUP if its decoder is missing.
    """
    head = read(size)
    form = form_of(head)
    if form is not None:
        text = _Text(form, lambda _size, _at: read(size), head)
        yield from iter(text.more, b"")
        if loss := text.file.loss:
            raise OSError(errno.EIO, loss)
        return
    while head:
        yield head
        head = read(size)


def _current(descriptor: int) -> _DecodedFile | None:
    """The file's decoder; None if the file needs none, or was rewritten (perhaps as plain text)."""
    file = _files.get(descriptor)
    if file is not None and not file.is_same():
        del _files[descriptor]
        return None
    return file


def _recognise(descriptor: int, head: bytes) -> bool:
    form = form_of(head)
    if form is not None:
        _files[descriptor] = _DecodedFile(descriptor, form)
    return form is not None
