"""Stack dumps made on demand: one event each, however many threads it shows.

Formats: CPython's faulthandler (Python/traceback.c, Modules/faulthandler.c; 3.14 adds the
thread's name and the C stack) and `py-spy dump` with or without `--native` and `--locals`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ldlm_monitor.parse.blocks import MAX_FOREIGN_LINES
from ldlm_monitor.parse.events import EventRule, Place, text_of
from ldlm_monitor.parse.patterns import compile_pattern

if TYPE_CHECKING:
    from ldlm_monitor.model.records import FieldValue, Record, Scalar

MAX_THREADS = 64
MAX_FRAMES = 64
MAX_FRAME_BYTES = 256

_FAULTHANDLER = compile_pattern(
    r"(?P<current>Current t|T)hread (?P<thread>0x[0-9A-Fa-f]{1,16})"
    r"(?: \[(?P<name>[^\]]*)\])? \(most recent call first\):\s*$"
)
_PY_SPY = compile_pattern(
    r"Thread (?P<thread>\d{1,19}|0x[0-9A-Fa-f]{1,16}) \((?P<state>active|idle)(?P<gil>\+gil)?\)"
    r'(?:: "(?P<name>[^"]*)")?\s*$'
)
_FRAME = compile_pattern(
    r'  File "(?P<file>[^"]*)", line (?P<line>\d{1,9}|\?\?\?) in (?P<name>.+)$'
)
_PY_SPY_FRAME = compile_pattern(
    r"    (?P<name>\S.*) \((?P<file>[^()]+?)(?::(?P<line>\d{1,9}))?\)\s*$"
)
_NO_FRAME = compile_pattern(
    r"  (?:\.\.\.|<[^>]+>|Garbage-collecting|Binary file .*)\s*$"
    r"|Current thread's C stack trace \(most recent call first\):\s*$"
)
_VARIABLES = compile_pattern(r" {8,}\S")
_MAIN = "MainThread"


class StackDump:
    """The threads of one process, from the first line of its dump on.

    A thread that is there already begins another dump.
    """

    greedy = False
    patience = MAX_FOREIGN_LINES

    def __init__(
        self,
        rule: EventRule,
        place: Place,
        head: bytes,
        named: dict[str, bytes],
        *,
        now: float,
        stream: bytes,
    ) -> None:
        self.stream = stream
        self.touched = now
        self.foreign = 0
        self.done = False
        self._rule = rule
        self._place = place
        self._head = head
        self._named = {name: named[name] for name in ("after",) if name in named}
        self._threads: list[dict[str, Scalar | list[Scalar]]] = []
        self._frames: list[Scalar] = []
        self._seen: set[bytes] = set()
        self._py_spy = False
        self._current: int | None = None
        self._take_thread(head)

    def take(self, text: bytes, *, logged: bool, closed: bool) -> int | None:
        """Take a thread's header, its frames, or what stands between two threads."""
        if logged:
            return None
        blank = bool(self._threads) and not text.strip()
        if blank or self._take_thread(text) or self._take_frame(text):
            return len(text)
        return None

    def _take_thread(self, text: bytes) -> bool:
        dialects = ((_FAULTHANDLER, False), (_PY_SPY, True))
        for pattern, py_spy in dialects:
            match = pattern.match(text)
            if match is None:
                continue
            named = pattern.named(match)
            if named["thread"] in self._seen or (self._threads and py_spy != self._py_spy):
                self.done = True
                return False
            self._py_spy = py_spy
            self._seen.add(named["thread"])
            self._begin(named)
            return True
        return False

    def _begin(self, named: dict[str, bytes]) -> None:
        self._frames = []
        thread: dict[str, Scalar | list[Scalar]] = {"thread": text_of(named["thread"])}
        for field in ("name", "state"):
            if field in named:
                thread[field] = text_of(named[field], MAX_FRAME_BYTES)
        if "gil" in named:
            thread["gil"] = True
        thread["frames"] = self._frames
        del self._threads[MAX_THREADS - 1 :]  # the last one of a process is its main thread
        if named.get("current", b"").startswith(b"Current"):
            self._current = len(self._threads)
        self._threads.append(thread)

    def _take_frame(self, text: bytes) -> bool:
        if not self._threads:
            return False
        pattern = _PY_SPY_FRAME if self._py_spy else _FRAME
        match = pattern.match(text)
        if match is None:
            passed = _VARIABLES if self._py_spy else _NO_FRAME
            return passed.match(text) is not None
        if len(self._frames) < MAX_FRAMES:
            self._frames.append(_frame(pattern.named(match)))
        return True

    def records(self) -> list[Record]:
        """One event, whose message is where the main thread stands."""
        fields = self._rule.fields(self._named)
        message = text_of(self._head)
        main = self._main()
        if main is not None:
            for name in ("thread", "name", "state"):
                if name in main:
                    fields[name] = main[name]
            fields["threads"] = [*self._threads]
            if (pid := _pid(main)) is not None:
                fields["pid"] = pid
            if (frame := _innermost(main)) is not None:
                fields["frame"] = frame
                message = f"{self._owner(main)} in {frame}"
        return self._rule.records(self._place, message, fields)

    def _main(self) -> dict[str, Scalar | list[Scalar]] | None:
        """The main thread by its name, else the one that dumped, else the oldest: the last."""
        for thread in self._threads:
            if thread.get("name") == _MAIN:
                return thread
        if not self._threads:
            return None
        return self._threads[-1 if self._current is None else self._current]

    def _owner(self, thread: dict[str, Scalar | list[Scalar]]) -> str:
        """A thread that crashed need not be the main one."""
        if (name := thread.get("name", _MAIN)) != _MAIN:
            return f"thread {name}"
        return "main thread" if thread is self._threads[-1] or self._py_spy else "current thread"


def _innermost(thread: dict[str, Scalar | list[Scalar]]) -> str | None:
    """The innermost frame of Python code; of native code where there is no other."""
    frames = thread["frames"]
    if not isinstance(frames, list) or not frames:
        return None
    return str(next((frame for frame in frames if _in_python(frame)), frames[0]))


def _frame(named: dict[str, bytes]) -> str:
    name, file = text_of(named["name"], MAX_FRAME_BYTES), text_of(named["file"], MAX_FRAME_BYTES)
    line = f":{text_of(named['line'])}" if "line" in named else ""
    return f"{name} ({file}{line})"


def _in_python(frame: Scalar) -> bool:
    """py-spy's native frames tell a library and no line."""
    return str(frame).rpartition(":")[2].rstrip(")").isdigit()


def _pid(main: dict[str, Scalar | list[Scalar]]) -> FieldValue:
    """On Linux, py-spy's number of a main thread is that of its process."""
    told = str(main["thread"])
    return int(told) if main.get("name") == _MAIN and told.isdigit() else None
