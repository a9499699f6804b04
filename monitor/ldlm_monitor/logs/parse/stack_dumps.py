"""Stack dumps, and torchelastic's failure tables: one event for each.

`StackDump` reads the threads of a process from the output of CPython's faulthandler
(Python/traceback.c, Modules/faulthandler.c; 3.14 adds the thread's name and the C stack) and of
`py-spy dump` with or without `--native` and `--locals`.

`FailureTable` reads the report of a ChildFailedError: `{script} FAILED`, a ruler, `Failures:`,
`Root Cause (first observed failure):`, and under both headings blocks of `key : value` rows
that begin with `[{index}]:` (torch/distributed/elastic/multiprocessing/errors). Rulers are as
wide as the longest line.
"""

from typing import TypeAlias

from ldlm_monitor.base.records import FieldValue, Record, Scalar
from ldlm_monitor.base.text.format import signal_name
from ldlm_monitor.logs.parse.blocks import BLANK, Block, BlockLine, BlockOpening, LineForm
from ldlm_monitor.logs.parse.event_rules import EventRule, earliest, text_of
from ldlm_monitor.logs.parse.patterns import compile_pattern

Thread: TypeAlias = dict[str, Scalar | list[Scalar]]
"""`thread` (ID), `name`, `state` (py-spy), `gil` (if held), and `frames`, the innermost first."""

MAX_THREADS = 64
"""Most threads kept of a dump. A choice: data loaders make it dozens, more swell the event."""
MAX_FRAMES = 64
"""Innermost frames kept of a thread. A choice: the outermost of faulthandler's 100 rarely help."""
MAX_FRAME_BYTES = 256
"""Bytes kept of a function's name or of a path. A choice: usual paths fit, more swell the event."""

_FAULTHANDLER = compile_pattern(  # faulthandler's header of a thread
    r"(?P<current>Current t|T)hread (?P<thread>0x[0-9A-Fa-f]{1,16})"
    r"(?: \[(?P<name>[^\]]*)\])? \(most recent call first\):\s*$"
)
_PY_SPY = compile_pattern(  # py-spy's header of a thread
    r"Thread (?P<thread>\d{1,19}|0x[0-9A-Fa-f]{1,16}) \((?P<state>active|idle)(?P<gil>\+gil)?\)"
    r'(?:: "(?P<name>[^"]*)")?\s*$'
)
_FRAME = compile_pattern(  # a frame as faulthandler prints it
    r'  File "(?P<file>[^"]*)", line (?P<line>\d{1,9}|\?\?\?) in (?P<name>.+)$'
)
_PY_SPY_FRAME = compile_pattern(  # a frame as py-spy prints it; native code has no line
    r"    (?P<name>\S.*) \((?P<file>[^()]+?)(?::(?P<line>\d{1,9}))?\)\s*$"
)
# What faulthandler prints in place of frames, and the head of its C stack.
_NO_FRAME = compile_pattern(
    r"  (?:\.\.\.|<[^>]+>|Garbage-collecting|Binary file .*)\s*$"
    r"|Current thread's C stack trace \(most recent call first\):\s*$"
)
_VARIABLES = compile_pattern(r" {8,}\S")  # of py-spy's `--locals`, indented below their frame
_MAIN = "MainThread"  # the name that Python's threading gives to the main thread


class StackDump(Block[EventRule]):
    """The threads of one process. A thread's second header begins another dump."""

    def __init__(self, opening: BlockOpening[EventRule]) -> None:
        super().__init__(opening)
        self._threads: list[Thread] = []
        self._frames: list[Scalar] = []
        self._seen: set[bytes] = set()
        self._py_spy = False
        self._current: int | None = None
        self.take(opening.text, logged=False, closed=True)

    def _blank(self, _: BlockLine) -> bool:
        return bool(self._threads)

    def _thread(self, line: BlockLine) -> bool:
        named, py_spy = line.named(), line.pattern is _PY_SPY
        if named["thread"] in self._seen or (self._threads and py_spy != self._py_spy):
            self.done = True
            return False
        self._py_spy = py_spy
        self._seen.add(named["thread"])
        self._frames = []
        thread: Thread = {"thread": text_of(named["thread"])}
        for field in ("name", "state"):
            if field in named:
                thread[field] = text_of(named[field], MAX_FRAME_BYTES)
        if "gil" in named:
            thread["gil"] = True
        thread["frames"] = self._frames
        del self._threads[MAX_THREADS - 1 :]  # the last thread of a dump is the main one
        if named.get("current", b"").startswith(b"Current"):
            self._current = len(self._threads)
        self._threads.append(thread)
        return True

    def _frame(self, line: BlockLine) -> bool:
        if not self._threads or self._py_spy != (line.pattern is _PY_SPY_FRAME):
            return False
        if len(self._frames) < MAX_FRAMES:
            self._frames.append(_frame(line.named()))
        return True

    def _other(self, line: BlockLine) -> bool:
        """Handle a line between frames that is no frame, such as py-spy's local variables."""
        return bool(self._threads) and self._py_spy == (line.pattern is _VARIABLES)

    forms = (
        LineForm(BLANK, _blank),
        LineForm(_FAULTHANDLER, _thread),
        LineForm(_PY_SPY, _thread),
        LineForm(_FRAME, _frame),
        LineForm(_PY_SPY_FRAME, _frame),
        LineForm(_NO_FRAME, _other),
        LineForm(_VARIABLES, _other),
    )

    def records(self) -> list[Record]:
        """One event; its message is the innermost frame of the main thread or the crashed one."""
        named = self.opening.named
        fields = self.rule.fields({name: named[name] for name in ("after",) if name in named})
        message = text_of(self.opening.text)
        main = self._main()
        if main is not None:
            fields |= {name: main[name] for name in ("thread", "name", "state") if name in main}
            fields["threads"] = [*self._threads]
            thread = str(main["thread"])
            if main.get("name") == _MAIN and thread.isdigit():
                fields["pid"] = int(thread)  # on Linux the main thread's ID, which py-spy prints
            if (frame := _innermost(main)) is not None:
                fields["frame"] = frame
                message = f"{self._owner(main)} in {frame}"
        return self.rule.records(self.place, message, fields)

    def _main(self) -> Thread | None:
        """The thread `MainThread`, else the one that dumped, else the last (oldest); or None."""
        named = [thread for thread in self._threads if thread.get("name") == _MAIN]
        last = -1 if self._current is None else self._current
        return named[0] if named else self._threads[last] if self._threads else None

    def _owner(self, thread: Thread) -> str:
        """How the message names a thread; a thread that crashed need not be the main one."""
        if (name := thread.get("name", _MAIN)) != _MAIN:
            return f"thread {name}"
        return "main thread" if thread is self._threads[-1] or self._py_spy else "current thread"


def _innermost(thread: Thread) -> str | None:
    """The innermost Python frame, else the innermost native one; None without frames."""
    frames = thread["frames"]
    if not isinstance(frames, list) or not frames:
        return None
    # A Python frame has a line number; py-spy's native frames have a library instead.
    numbered = (each for each in frames if str(each).rpartition(":")[2].rstrip(")").isdigit())
    return str(next(numbered, frames[0]))


def _frame(named: dict[str, bytes]) -> str:
    name, file = text_of(named["name"], MAX_FRAME_BYTES), text_of(named["file"], MAX_FRAME_BYTES)
    line = f":{text_of(named['line'])}" if "line" in named else ""
    return f"{name} ({file}{line})"


_TABLE_LINE = compile_pattern(
    r"(?P<end>={5,})\s*$|(?P<root>Root Cause \(first observed failure\):)"
    r"|\[(?P<index>\d{1,6})\]:\s*$|(?P<heading>Failures:|  <NO_OTHER_FAILURES>|-{5,})\s*$"
    r"|\s+(?P<key>time|host|rank|exitcode|error_file|traceback)\s*: (?P<value>.*)$"
    r"|  (?P<exception>\S.*)?"
)
"""Lines of a table; the last form is a line of a worker's traceback, indented by torchelastic."""
_RULER = compile_pattern(r"={5,}\s*$")  # five: less than the shortest line of a table
_NUMBERS = {
    "rank": compile_pattern(r"(?P<rank>\d{1,9}) \(local_rank: (?P<local_rank>\d{1,9})\)"),
    "exitcode": compile_pattern(
        r"(?P<exitcode>-?\d{1,9}) +\(pid: (?P<pid>\d{1,9})\)(?: +\((?P<signal>SIG\w+)\))?"
    ),
}
"""How torchelastic prints the rows with numbers; the values of other rows are texts."""
_MAX_FAILURES = 1024
"""Most failures kept of a table. A choice: all ranks of a job of 1024 fit, more swell the event."""
# Copied from the row of the root cause to fields `root_*` of the event.
_ROOT_FIELDS = ("rank", "local_rank", "exitcode", "signal", "pid", "host", "time", "kind", "role")


class FailureTable(Block[EventRule]):
    """The failures of one table. A `FAILED` line without a table gives no record."""

    def __init__(self, opening: BlockOpening[EventRule]) -> None:
        super().__init__(opening)
        self._rows: list[dict[str, Scalar]] = []
        self._started = self._at_root = False

    def _line(self, line: BlockLine) -> bool:
        """Return whether a line is of the table: before the first `[0]:`, only headings are."""
        named = line.named()
        if "end" in named:
            self.done = bool(self._rows)
            return self.done
        if "heading" in named or "root" in named:
            self._at_root = self._at_root or "root" in named
        elif "index" in named:
            if len(self._rows) < _MAX_FAILURES:
                self._rows.append({"index": int(named["index"]), "root": self._at_root})
        elif not self._rows:
            return False
        elif "key" in named:
            self._add_field(named["key"].decode(), named["value"], closed=line.closed)
        elif "exception" in named:
            self._rows[-1]["message"] = text_of(named["exception"])
        self._started = True
        return True

    def _add_field(self, key: str, value: bytes, *, closed: bool) -> None:
        """Add a field to the last failure, unless its line may be cut (`closed` false)."""
        row = self._rows[-1]
        if not closed:
            return
        if key not in _NUMBERS:
            row.setdefault("message" if key == "traceback" else key, text_of(value))
            return
        found = _NUMBERS[key].match(value)
        for name, raw in (_NUMBERS[key].named(found) if found else {}).items():
            row.setdefault(name, raw.decode() if name == "signal" else int(raw))
        code = row.get("exitcode")
        if "signal" not in row and isinstance(code, int) and code < 0:
            row["signal"] = signal_name(-code)

    forms = (LineForm(_TABLE_LINE, _line),)

    def refuse(self, text: bytes) -> None:
        """Close the block if the line after `FAILED` is neither a ruler nor a line of a table."""
        if not self._started and not _RULER.match(text):
            self.done = True

    def records(self) -> list[Record]:
        """One event; its fields `root_*` are the cause that the table names, which may be wrong."""
        if not self._rows:
            return []
        for row in self._rows:  # by its exception, a failure can be a consequence of another
            text = str(row.get("message", "")).encode()
            if first := earliest(self.opening.exceptions, text):
                row["kind"], row["role"] = first[0].spec.kind, first[0].spec.role
        script = text_of(self.opening.named["script"])
        fields: dict[str, FieldValue] = {"script": script, "failures": self._rows}
        message = f"{script} FAILED"
        root = next((row for row in self._rows if row["root"]), None)
        if root is not None:
            fields |= {f"root_{key}": root.get(key) for key in _ROOT_FIELDS}
            if root.get("rank") is not None:
                cause = root.get("signal") or f"exit code {root.get('exitcode')}"
                message = f"{message}: first failure is rank {root['rank']} ({cause})"
        return self.rule.records(self.place, message, fields)
