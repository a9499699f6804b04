"""The forms of compressed and converted files: how each begins, and what decodes it.

gzip (RFC 1952), xz (its .xz file format), bzip2, Zstandard (RFC 8878), the UTF-16 that
PowerShell's `>` writes, and what container engines write around each line: `containers`.
"""

import bz2
import codecs
import errno
import lzma
import re
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TypeAlias

from ldlm_monitor.source.containers import CriLines, DockerLines

DICTIONARY_BYTES = 128 * 1024 * 1024
"""Memory that xz may need, as much as Zstandard allows itself (`zstd --long`); `xz -9` takes 65
MiB. A file that asks for more is damaged, or made to exhaust memory."""
_BZIP2_BYTES = 10  # bzip2's stream header (4), and the magic number of the first block (6)
HEAD_BYTES = 64
"""First bytes by which a form is recognised: CRI, the longest, has 45 with time, stream, tag."""


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
