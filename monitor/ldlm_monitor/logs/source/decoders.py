r"""The forms of compressed and converted files: how each begins, and what decodes it.

gzip (RFC 1952), xz (its .xz file format), bzip2, Zstandard (RFC 8878), the UTF-16 that
PowerShell's `>` writes, and logs of container engines, decoded to whole lines in the form of
Kubernetes' CRI. Docker's json-file driver (daemon/logger/jsonfilelog) writes one JSON object per
line, with `log`, `stream` and `time`. containerd and CRI-O write CRI's `TIME STREAM TAG TEXT`. Both
split lines of a program after 16 KiB: Docker's text then has no `\n` at its end, and CRI's tag is
`P` instead of `F`. The parts of a line are joined by stream, with the time of the first part.
"""

import bz2
import codecs
import errno
import json
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TypeAlias

DICTIONARY_BYTES = 128 * 1024 * 1024
"""Memory that xz may need, as much as Zstandard allows itself (`zstd --long`); `xz -9` takes 65
MiB. A file that asks for more is damaged, or made to exhaust memory."""
_BZIP2_BYTES = 10  # bzip2's stream header (4), and the magic number of the first block (6)
HEAD_BYTES = 64
"""First bytes by which a form is recognised: CRI, the longest, has 45 with time, stream, tag."""
LINE_BYTES = 1024 * 1024
"""An unfinished line is returned at this length, which bounds memory; `split.RECORD_BYTES`,
which cannot be imported here, cuts records at the same length."""
TIME_LENGTH = 35
"""Characters of a time with nanoseconds and offset (RFC 3339). A longer text is no time; each
`\\r` would repeat it, and a log of a MiB could decode to many GiB."""


class _Gzip:
    """zlib's decompressor with the interface of `bz2.BZ2Decompressor`."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=zlib.MAX_WBITS + 16)
        self._is_full = False

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not (self._is_full or self._inner.unconsumed_tail)

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        found = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        self._is_full = len(found) == max_length
        return found


class _Utf16:
    """UTF-16 with a byte order mark, to UTF-8. Half a character waits for its other half."""

    eof = False
    needs_input = True
    unused_data = b""

    def __init__(self) -> None:
        self._inner = codecs.getincrementaldecoder("utf-16")("replace")

    def decompress(self, data: bytes, max_length: int) -> bytes:
        del max_length  # the UTF-8 text is at most half as long again as `data`
        return self._inner.decode(data).encode("utf-8", "replace")


class _Lines:
    """Decodes whole lines. The last line waits until its end comes, or `_opened` returns it.

    The interface is that of `bz2.BZ2Decompressor`.
    """

    eof = False
    needs_input = True
    unused_data = b""

    def __init__(self) -> None:
        self._rest = b""
        self._parts: dict[bytes, tuple[bytes, bytes]] = {}  # prefix and text, by stream
        self._is_open = False  # the last line was returned before its end came

    def decompress(self, data: bytes, max_length: int) -> bytes:
        del max_length  # only prefixes after `\r` make the result longer than what is decoded
        passed = b""
        if self._is_open:
            line, newline, data = data.partition(b"\n")
            passed, self._is_open = self._continued(line + newline), not newline
        end = data.rfind(b"\n") + 1
        if not end and len(self._rest) < LINE_BYTES:
            self._rest += data
        else:
            whole, self._rest = self._rest + data[:end], data[end:]
            passed += self._decoded(whole)
        if opened := self._opened(self._rest):
            self._rest, self._is_open = b"", True
        return passed + opened

    def _decoded(self, whole: bytes) -> bytes:
        lines = whole.removesuffix(b"\n").split(b"\n")  # `splitlines` would also split at `\r`
        return b"".join(part for line in lines for part in self._line(line + b"\n"))

    def _line(self, line: bytes) -> Iterator[bytes]:
        raise NotImplementedError

    def _opened(self, rest: bytes) -> bytes:
        """`rest`, a last line without its end, if its text cannot change; otherwise empty."""
        raise NotImplementedError

    def _continued(self, rest: bytes) -> bytes:
        """The rest of a line whose beginning `_opened` returned."""
        raise NotImplementedError

    def _joined(self, head: bytes, stream: bytes, text: bytes, *, ends: bool) -> Iterator[bytes]:
        """Add a part, `text`, to a stream's line; yield the line at its end, else up to the `\\r`.

        A progress bar is repainted with `\\r`, and its line may last for hours.
        """
        head, before = self._parts.pop(stream, (head, b""))
        text = before + text
        if not ends and len(text) < LINE_BYTES:
            cut = text.rfind(b"\r") + 1
            self._parts[stream] = head, text[cut:]
            text = text[:cut]
        body = text.rstrip(b"\r\n")
        if body or ends:
            yield head + body.replace(b"\r", b"\r" + head) + (text[len(body) :] or b"\n")


class DockerLines(_Lines):
    """Lines of Docker's json-file driver."""

    HEAD = re.compile(  # Go's encoder begins with `log`; relays write other orders, and blanks
        rb'\{\s*"(?:log"\s*:\s*"|stream"\s*:\s*"std(?:out|err)"\s*,'
        rb'|time"\s*:\s*"[\dT:.Z+-]{20,35}"\s*,\s*"(?:log|stream)"\s*:)'
    )

    def _line(self, line: bytes) -> Iterator[bytes]:
        row = _docker_row(line)
        if row is None:
            yield line  # the engine was killed while it wrote, or another program wrote the line
            return
        head, stream, text = row
        yield from self._joined(head, stream, text, ends=text.endswith(b"\n"))

    def _opened(self, rest: bytes) -> bytes:
        row = _docker_row(rest) if rest.endswith(b"}") else None
        # A part would be joined once more when its line is complete.
        is_whole = row is not None and row[2].endswith(b"\n")
        return b"".join(self._line(rest)) if is_whole else b""

    def _continued(self, rest: bytes) -> bytes:
        return b"" if rest.isspace() else rest


def _docker_row(line: bytes) -> tuple[bytes, bytes, bytes] | None:
    """The prefix in CRI's form, the stream and the text; None if Docker did not write the line."""
    try:
        row = json.loads(line)
        time, stream, text = row["time"], row["stream"], row["log"]
        if stream not in ("stdout", "stderr") or len(time) > TIME_LENGTH:
            return None
        head = f"{time} {stream} F ".encode("utf-8", "replace")
        return head, stream.encode(), text.encode("utf-8", "replace")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


class CriLines(_Lines):
    """Lines of CRI. Data without parts of lines and without `\\r` is returned unchanged."""

    # `{8,18}`: a time with seconds to nanoseconds. CRI allows more tags after the first, which no
    # engine writes: `{0,64}` bounds the prefix, which each `\r` repeats.
    HEAD = re.compile(
        rb"(?P<head>\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d) (?P<stream>stdout|stderr) )"
        rb"(?P<tag>[FP])(?::\S{0,64})? "
    )

    _head = _held = b""  # of an opened line: its prefix, and last line ends not returned yet

    def _decoded(self, whole: bytes) -> bytes:
        is_plain = not self._parts and not any(mark in whole for mark in (b" P ", b" P:", b"\r"))
        return whole if is_plain else super()._decoded(whole)

    def _line(self, line: bytes) -> Iterator[bytes]:
        match = self.HEAD.match(line)
        if match is None:
            yield line
            return
        text, ends = line[match.end() :], match["tag"] == b"F"
        text = text if ends else text.removesuffix(b"\n")
        head = line[: match.end()] if ends else match["head"] + b"F "
        yield from self._joined(head, match["stream"], text, ends=ends)

    def _opened(self, rest: bytes) -> bytes:
        match = self.HEAD.match(rest)
        waits = match is None or match["tag"] == b"P" or match["stream"] in self._parts
        if match is None or waits or b"\r" in rest:
            return b""
        self._head = rest[: match.end()]
        return rest

    def _continued(self, rest: bytes) -> bytes:
        """Put the prefix after each `\\r`, as `_joined` does; a last `\\r` waits for a byte."""
        rest, self._held = self._held + rest, b""
        body = rest.rstrip(b"\r\n")
        end = rest[len(body) :]
        if not end.endswith(b"\n"):
            end, self._held = b"", end
        return body.replace(b"\r", b"\r" + self._head) + end


Decoder: TypeAlias = (
    bz2.BZ2Decompressor | lzma.LZMADecompressor | _Gzip | _Utf16 | DockerLines | CriLines
)
"""The interface is that of `bz2.BZ2Decompressor`; Zstandard's decoder has it too."""


@dataclass(frozen=True, slots=True)
class Form:
    """A form of files. `head` matches the first bytes of such a file; `decoder` makes a decoder.

    `ends`: the form marks the end of a file, so that a cut file can be recognised.
    """

    name: str
    head: re.Pattern[bytes]
    decoder: Callable[[], Decoder]
    ends: bool = True


def _new_zstd() -> Decoder:
    """A decoder of Python's module (3.14 on) or its backport; `OSError` (ENOTSUP) without both."""
    module = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    try:
        decoder: Decoder = import_module(module).ZstdDecompressor()
    except ImportError as error:
        needed = "Zstandard needs the package backports.zstd, which is not installed"
        raise OSError(errno.ENOTSUP, needed) from error
    return decoder


# The formats' documents give the magic numbers. In decompressed data only `_CONVERTED` count.
_COMPRESSED = (
    Form("gzip", re.compile(rb"\x1f\x8b\x08"), _Gzip),
    Form(
        "xz", re.compile(rb"\xfd7zXZ\0"), partial(lzma.LZMADecompressor, memlimit=DICTIONARY_BYTES)
    ),
    Form("bzip2", re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), bz2.BZ2Decompressor),
    # The second alternative is a skippable frame (RFC 8878), with which pzstd begins.
    Form("zstd", re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), _new_zstd),
)
_CONVERTED = (
    Form("UTF-16", re.compile(rb"\xff\xfe(?!\0\0)|\xfe\xff"), _Utf16, ends=False),
    Form("docker", DockerLines.HEAD, DockerLines, ends=False),
    Form("CRI", CriLines.HEAD, CriLines, ends=False),
)
_FIRST_BYTES = frozenset(b"\x1f\xfdB\x28\xff\xfe{0123456789" + bytes(range(0x50, 0x60)))
"""Bytes with which a file of a form may begin: a look-up at each read excludes most logs."""


def remedy(error: OSError) -> str:
    """What a user may do about a file whose opening or reading raised `error`."""
    missing = error.errno == errno.ENOTSUP
    return "pip install backports.zstd" if missing else "check its permissions"


def form_of(head: bytes, *, compressed: bool = True) -> Form | None:
    """The form of a file that begins with `head`; None if the file is read as it is.

    `compressed`: False for decompressed data, in which no compressed form is looked for.
    """
    if not head or head[0] not in _FIRST_BYTES:
        return None
    forms = (*_COMPRESSED, *_CONVERTED) if compressed else _CONVERTED
    return next((form for form in forms if form.head.match(head)), None)


def is_begun(head: bytes) -> bool:
    """Whether a file that has only `head` so far may turn out to be compressed or UTF-16."""
    starts = (b"\x1f\x8b\x08", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"\xff\xfe", b"\xfe\xff")
    is_bzip2 = head.startswith(b"BZh") and len(head) < _BZIP2_BYTES
    return is_bzip2 or any(start.startswith(head) and head < start for start in starts)
