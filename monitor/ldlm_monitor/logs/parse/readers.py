"""The table of readers: which one reads a file of a known structure, by its name or first bytes."""

from functools import lru_cache

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.framing import Framing
from ldlm_monitor.logs.parse.event_file import EventFileReader
from ldlm_monitor.logs.parse.metric_file import MetricFileReader
from ldlm_monitor.logs.parse.row_reader import RowReader
from ldlm_monitor.logs.parse.table_file import TableReader
from ldlm_monitor.logs.parse.wandb_file import WandbReader
from ldlm_monitor.logs.parse.whole_file import WholeFile

READERS: tuple[type[WholeFile], ...] = (
    RowReader,
    TableReader,
    EventFileReader,
    WandbReader,
    MetricFileReader,
)
"""The readers of files of a known structure; the first that recognises a file reads it."""
_FRAMINGS = tuple(each.framing for each in READERS if each.framing is not None)

HEAD_BYTES = 64
"""First bytes of a file by which its frames are recognised; a TFRecord needs the most, 12."""


def framing_of(head: bytes) -> Framing | None:
    """The framing of a file that begins with `head`; None for lines, or if `head` is too short."""
    return next((each for each in _FRAMINGS if each.begins(head)), None)


def may_be_framed(head: bytes) -> bool:
    """Whether a file that has only `head` so far, or only NUL bytes, may be one of frames."""
    return any(each.begins(head) is None for each in _FRAMINGS)


def framing_named(name: str) -> Framing | None:
    """The framing that `name` stands for in a recording; "" for lines. Raises `ValueError`."""
    found = next((each for each in _FRAMINGS if each.name == name), None)
    if found is None and name:
        raise ValueError(f"no reader has frames of the form {name!r}")
    return found


def reader_of(chunk: Chunk) -> WholeFile | None:
    """The reader for the file whose chunk this is; None if the file is text."""
    made = (each.of(chunk) for each in READERS if each.framing is chunk.framed)
    return next((reader for reader in made if reader is not None), None)


def timed_reader_of(path: str, head: bytes) -> type[WholeFile] | None:
    """The reader of a file, by its path and first bytes, that gives times; None for another."""
    reader = reader_of(Chunk(path, (0, 0, 0), 0, 1, head, framed=framing_of(head)))
    return type(reader) if reader is not None and reader.has_times else None


@lru_cache(maxsize=4096)  # names. A choice: each costs 200 bytes, and each sample asks
def is_tracker(name: str) -> bool:
    """Whether a file of this name is an experiment tracker's."""
    return any(each.is_tracker(name) for each in READERS)
