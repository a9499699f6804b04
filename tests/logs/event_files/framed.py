"""Reading a file of frames as the monitor does, in pieces that the test cuts."""

from collections.abc import Iterator
from pathlib import Path

from ldlm_monitor.base.chunk import Chunk, Origin
from ldlm_monitor.base.records import Record
from ldlm_monitor.logs.parse import Parser
from ldlm_monitor.logs.source.split import Splitter

FILES = Path(__file__).resolve().parent


def chunks_of(pieces: list[bytes], path: str) -> Iterator[Chunk]:
    splitter = Splitter(path, (1, 1, 0))
    for piece in pieces:
        yield from splitter.feed(piece, 0.0)
    yield splitter.finish()


def read(*pieces: bytes, path: str) -> tuple[list[Record], int]:
    """The records, and how many frames were damaged."""
    parser = Parser()
    chunks = chunks_of(list(pieces), path)
    found = [r for chunk in chunks for r in parser.feed(chunk, Origin("exp"), 0.0)]
    return found, parser.counters.parse_errors
