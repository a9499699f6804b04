"""Standard input, or any pipe: bytes that come once."""

import os
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from ldlm_monitor.model.chunk import Chunk
from ldlm_monitor.source.journal import Journal
from ldlm_monitor.source.patterns import STANDARD_INPUT
from ldlm_monitor.source.split import Splitter

PIECE_BYTES = 64 * 1024
QUEUED_PIECES = 64
"""The writer waits when the monitor is that far behind: 4 MiB."""


class StdinSource:
    """Reads a pipe in a thread of its own, so that a silent one holds up nobody.

    `ring` is called, from that thread, whenever there is something to read. `journal`
    counts records that were cut.
    """

    def __init__(
        self, stream: BinaryIO, ring: Callable[[Path], None], journal: Journal | None = None
    ) -> None:
        self._journal = Journal() if journal is None else journal
        self.path = Path(STANDARD_INPUT)
        status = os.fstat(stream.fileno())
        self._splitter = Splitter(STANDARD_INPUT, (status.st_dev, status.st_ino, 0))
        self._pieces: queue.Queue[bytes] = queue.Queue(QUEUED_PIECES)
        self._ring = ring
        self.ended = False
        # A daemon thread: nothing can wake it from a read of a pipe that stays open.
        self.thread = threading.Thread(target=self._pump, args=(stream,), name="stdin", daemon=True)
        self.thread.start()

    def read(self, now: float) -> Iterator[Chunk]:
        """What has come in; the last chunk is `final`."""
        cut = self.cut_records
        while not self.ended:
            try:
                piece = self._pieces.get_nowait()
            except queue.Empty:
                break
            if piece:
                yield from self._splitter.feed(piece, now)
            else:
                self.ended = True
                yield self._splitter.finish()
        self._journal.cut(STANDARD_INPUT, self.cut_records - cut)
        peek_at = self._splitter.peek_at()
        if peek_at is not None and peek_at <= now:
            yield self._splitter.peek()

    def next_peek(self) -> float | None:
        """When (Unix seconds) the unfinished record is to be shown as it stands."""
        return self._splitter.peek_at()

    @property
    def cut_records(self) -> int:
        """Records that were longer than 1 MiB."""
        return self._splitter.cut_records

    def _pump(self, stream: BinaryIO) -> None:
        piece = b"..."
        while piece:
            try:
                piece = os.read(stream.fileno(), PIECE_BYTES)
            except (OSError, ValueError):  # closed under us: that is its end
                piece = b""
            self._pieces.put(piece)
            self._ring(self.path)
