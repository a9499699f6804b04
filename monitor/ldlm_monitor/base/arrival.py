"""When which bytes of a file were read, as the read log of `state` has it."""

from typing import Literal, NamedTuple, TypeAlias

from ldlm_monitor.base.chunk import FileId

Kind: TypeAlias = Literal["records", "peek", "final", "backlog", "skipped"]
"""`records`: whole records. `peek`: the last record, shown before it was finished. `final`: the
file's last bytes. `backlog`: bytes that the file held when first seen; their `at` is the file's
time of modification. `skipped`: bytes of an earlier launch, which are not judged."""


class Arrival(NamedTuple):
    """Bytes `start` to `stop` of a file, read at `at` (Unix seconds); they begin in line `line`.

    `order`: the row's number in the read log, which rises over all files.
    """

    at: float
    path: str
    file: FileId
    start: int
    stop: int
    line: int = 1
    kind: Kind = "backlog"
    order: int = 0
