"""torchelastic's failure table: one event for the whole ChildFailedError report.

Shape: `{script} FAILED`, a ruler, `Failures:`, `Root Cause (first observed
failure):`, and under both blocks of `key : value` rows headed `[{index}]:`
(torch/distributed/elastic/multiprocessing/errors). Rulers are as wide as the
longest line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ldlm_monitor.parse.blocks import MAX_FOREIGN_LINES
from ldlm_monitor.parse.events import EventRule, Place, signal_name, text_of
from ldlm_monitor.parse.patterns import compile_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ldlm_monitor.model.records import FieldValue, Record, Scalar

_HEADING = compile_pattern(r"(?:Failures:|  <NO_OTHER_FAILURES>|-{5,})\s*$")
_ROOT = compile_pattern(r"Root Cause \(first observed failure\):")
_INDEX = compile_pattern(r"\[(?P<index>\d{1,6})\]:\s*$")
_ROW = compile_pattern(
    r"\s+(?P<key>time|host|rank|exitcode|error_file|traceback)\s*: (?P<value>.*)$"
)
_RANKS = compile_pattern(r"(?P<rank>\d{1,9}) \(local_rank: (?P<local_rank>\d{1,9})\)")
_EXIT = compile_pattern(
    r"(?P<exitcode>-?\d{1,9}) +\(pid: (?P<pid>\d{1,9})\)(?: +\((?P<signal>SIG\w+)\))?"
)
_END = compile_pattern(r"={5,}\s*$")
_MAX_FAILURES = 1024


class FailureTable:
    """The rows of one table. A `FAILED` line that no table follows gives nothing."""

    greedy = False
    patience = MAX_FOREIGN_LINES

    def __init__(
        self,
        rule: EventRule,
        place: Place,
        named: dict[str, bytes],
        now: float,
        stream: bytes,
        *,
        known: Sequence[EventRule],
    ) -> None:
        self.stream = stream
        self.touched = now
        self.foreign = 0
        self.done = False
        self._rule = rule
        self._place = place
        self._kinds = known
        self._script = text_of(named["script"])
        self._rows: list[dict[str, Scalar]] = []
        self._known = self._at_root = False

    def take(self, text: bytes, *, logged: bool, closed: bool) -> int | None:
        """Take a row or a heading of the table, or the ruler that ends it."""
        if logged:
            return None
        if _END.match(text):
            self.done = bool(self._rows)
            return len(text) if self.done else None
        taken = self._take_heading(text) or self._take_row(text, closed=closed)
        if not taken and not self._known:
            self.done = True
        self._known = self._known or taken
        return len(text) if taken else None

    def _take_heading(self, text: bytes) -> bool:
        if _ROOT.match(text):
            self._at_root = True
            return True
        index = _INDEX.match(text)
        if index:
            if len(self._rows) < _MAX_FAILURES:
                number = int(_INDEX.named(index)["index"])
                self._rows.append({"index": number, "root": self._at_root})
            return True
        return _HEADING.match(text) is not None

    def _take_row(self, text: bytes, *, closed: bool) -> bool:
        match = _ROW.match(text)
        if match is None or not self._rows:
            return self._take_traceback(text)
        if not closed:
            return True
        named = _ROW.named(match)
        key, value = named["key"].decode(), named["value"]
        row = self._rows[-1]
        if key == "rank":
            self._add(row, _RANKS.named(found) if (found := _RANKS.match(value)) else {})
        elif key == "exitcode":
            self._add(row, _EXIT.named(found) if (found := _EXIT.match(value)) else {})
            code = row.get("exitcode")
            if "signal" not in row and isinstance(code, int) and code < 0:
                row["signal"] = signal_name(code)
        else:
            row.setdefault("message" if key == "traceback" else key, text_of(value))
        return True

    def _take_traceback(self, text: bytes) -> bool:
        """A line of the worker's traceback (torchelastic's error file), two blanks deep."""
        if not self._rows or not text.startswith(b"  "):
            return False
        if len(text) > 2 and not text[2:3].isspace():
            self._rows[-1]["message"] = text_of(text[2:])
        return True

    def _tell_kind(self, row: dict[str, Scalar]) -> None:
        """What kind of failure the row's own exception is: a survivor's is only a victim's."""
        text = str(row.get("message", "")).encode()
        for rule in self._kinds:
            if rule.find(text, 0, glued=True):
                row["kind"], row["role"] = rule.spec.kind, rule.spec.role
                return

    @staticmethod
    def _add(row: dict[str, Scalar], named: dict[str, bytes]) -> None:
        for name, raw in named.items():
            row.setdefault(name, raw.decode() if name == "signal" else int(raw))

    def records(self) -> list[Record]:
        """One event; the `root_*` fields are the table's claim, not a verdict."""
        if not self._rows:
            return []
        for row in self._rows:
            self._tell_kind(row)
        fields: dict[str, FieldValue] = {"script": self._script, "failures": self._rows}
        root = next((row for row in self._rows if row["root"]), None)
        for key in (
            "rank",
            "local_rank",
            "exitcode",
            "signal",
            "pid",
            "host",
            "time",
            "kind",
            "role",
        ):
            if root is not None:
                fields[f"root_{key}"] = root.get(key)
        message = f"{self._script} FAILED"
        if root is not None and root.get("rank") is not None:
            cause = root.get("signal") or f"exit code {root.get('exitcode')}"
            message = f"{message}: first failure is rank {root['rank']} ({cause})"
        return self._rule.records(self._place, message, fields)
