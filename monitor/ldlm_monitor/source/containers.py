r"""What container engines write around each line of a log, turned into lines of CRI.

Docker's json-file driver (daemon/logger/jsonfilelog): an object a line, with `log`, `stream`
and `time`. containerd and CRI-O (Kubernetes' CRI): `TIME STREAM TAG TEXT`. Both cut what a
program writes after 16 KiB: Docker's text has no `\n` at its end then, CRI's tag is `P`
instead of `F`. Parts are put together here, by stream, under the time of the first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

LINE_BYTES = 1024 * 1024
"""An unfinished line is passed on at this length, as a record is (`split.RECORD_BYTES`)."""


class _Lines:
    """Decodes whole lines; the last one waits until it is whole, or can be read as it is."""

    eof = False
    needs_input = True
    unused_data = b""

    def __init__(self) -> None:
        self._rest = b""
        self._parts: dict[bytes, tuple[bytes, bytes]] = {}
        self._is_open = False  # the last line was passed on before its end came

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """The lines that `data` completes, as the decompressors do."""
        del max_length  # a line becomes shorter, but for the prefixes of its bars
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
        lines = whole.removesuffix(b"\n").split(b"\n")  # `splitlines` would cut bars apart
        return b"".join(part for line in lines for part in self._line(line + b"\n"))

    def _line(self, line: bytes) -> Iterator[bytes]:
        raise NotImplementedError

    def _opened(self, rest: bytes) -> bytes:
        """What a last line without its end holds for certain; empty if it must wait."""
        raise NotImplementedError

    def _continued(self, rest: bytes) -> bytes:
        """What follows of a line that was passed on."""
        raise NotImplementedError

    def _joined(self, head: bytes, stream: bytes, text: bytes, *, ends: bool) -> Iterator[bytes]:
        """What is known of a stream's line after its next part.

        A bar that a `\\r` repaints is passed on at once: its line may last for hours.
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

    HEAD = re.compile(rb'\{"log":"')

    def _line(self, line: bytes) -> Iterator[bytes]:
        try:
            row = json.loads(line)
            text, stream, time = row["log"], row["stream"], row["time"]
            head = f"{time} {stream} F ".encode("utf-8", "replace")
            body = text.encode("utf-8", "replace")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            yield line  # the engine was killed while it wrote, or it is another program's
            return
        yield from self._joined(head, stream.encode(), body, ends=body.endswith(b"\n"))

    def _opened(self, rest: bytes) -> bytes:
        is_whole = rest.endswith(b"}") and _is_json(rest)
        return b"".join(self._line(rest)) if is_whole else b""

    def _continued(self, rest: bytes) -> bytes:
        return b"" if rest.isspace() else rest


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


class CriLines(_Lines):
    """Lines of CRI. Pieces with neither parts of a line nor bars are passed on as they are."""

    HEAD = re.compile(
        rb"(?P<head>\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?P<stream>stdout|stderr) )"
        rb"(?P<tag>[FP])(?::\S*)? "
    )

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
        yield from self._joined(match["head"] + b"F ", match["stream"], text, ends=ends)

    def _opened(self, rest: bytes) -> bytes:
        match = self.HEAD.match(rest)
        waits = match is None or match["tag"] == b"P" or match["stream"] in self._parts
        return b"" if waits or b"\r" in rest else rest

    def _continued(self, rest: bytes) -> bytes:
        return rest
