"""The bytes of a Python file, where the nodes of its tree stand in them, and edits of them.

Edits change as few bytes as possible and keep comments and layout. Edits of several findings may
stand at one byte; each is written so that they can follow one another there in any order.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from functools import cached_property

from ldlm_doctor.model import Edit, Edits, Finding, SourceFile, with_edits

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"
_LONGEST_EVIDENCE = 400
_PIECE = re.compile(rb"#[^\r\n]*|[,)]|\s+|\\")
_LINE_REST = re.compile(rb"[ \t]*(?=[\r\n])")
_LINE_REST_OR_COMMENT = re.compile(rb"[ \t]*(?:#[^\r\n]*)?(?=[\r\n])")


@dataclass(eq=False)
class SourceText:
    """A file as it is written."""

    file: SourceFile

    @cached_property
    def starts(self) -> list[int]:
        """The byte at which each line begins."""
        return [0, *(found.end() for found in _LINE_END.finditer(self.file.content))]

    @cached_property
    def is_editable(self) -> bool:
        """Columns of the tree are bytes of the file: it is UTF-8."""
        try:
            self.file.content.decode("utf-8")
        except UnicodeDecodeError:
            return False
        cookie = re.search(rb"coding[:=]\s*([-\w.]+)", b"".join(self.line_bytes(1, 3)))
        return cookie is None or cookie[1].lower().replace(b"_", b"-") in (b"utf-8", b"utf8")

    @cached_property
    def newline(self) -> bytes:
        """How the file ends its lines."""
        found = _LINE_END.search(self.file.content)
        return found[0] if found else b"\n"

    def line_bytes(self, first: int, last: int) -> list[bytes]:
        """The 1-based lines `first` to `last` - 1, with their ends."""
        starts, content = [*self.starts, len(self.file.content)], self.file.content
        last = min(last, len(self.starts) + 1)
        return [content[starts[at - 1] : starts[at]] for at in range(first, last)]

    def offset(self, line: int, column: int) -> int:
        """The byte of the file at a place of the tree."""
        skipped = len(_BOM) if line == 1 and self.file.content.startswith(_BOM) else 0
        return self.starts[line - 1] + column + skipped

    def start(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        """The first byte of a node."""
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        """The byte after a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.end_lineno, node.end_col_offset)

    def text(self, node: ast.expr | ast.stmt) -> str:
        """A node as it is written."""
        return self.file.content[self.start(node) : self.end(node)].decode("utf-8", "replace")

    def finding(
        self,
        check: str,
        node: ast.expr | ast.stmt | ast.excepthandler | ast.keyword | int,
        detail: str = "",
        edits: Edits = (),
    ) -> Finding:
        """A finding at a node, or at a line. Edits that do not give Python are left out."""
        line = node if isinstance(node, int) else node.lineno
        text = b"".join(self.line_bytes(line, line + 1)).decode("utf-8", "replace")
        evidence = text.lstrip("\ufeff").strip()
        if edits and not self._still_python(edits):
            edits = ()
        return Finding(check, self.file.path, line, evidence[:_LONGEST_EVIDENCE], detail, edits)

    def _still_python(self, edits: Edits) -> bool:
        if not self.is_editable:
            return False
        try:
            parsed(with_edits(self.file.content, edits))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        return True


def parsed(content: bytes) -> ast.Module:
    """The syntax tree. Raises what `ast.parse` raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes in the user's strings
        return ast.parse(content)


def replaced(source: SourceText, node: ast.expr | ast.stmt, text: str) -> Edit:
    """The node becomes `text`."""
    return Edit(source.file.path, source.start(node), source.end(node), text.encode())


def inserted(source: SourceText, at: int, text: str) -> Edit:
    """`text` before byte `at`."""
    return Edit(source.file.path, at, at, text.encode())


def keyword_added(source: SourceText, call: ast.Call, text: str) -> Edits:
    """`text`, such as `a=1`, becomes the last argument of a call that has some already."""
    closing = source.end(call) - 1
    given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    if not given:
        return ()
    last = max(given, key=source.end)
    after, has_comma = _after(source.file.content, source.end(last), closing)
    if not has_comma:
        indent = _own_line(source, last)
        follows = _LINE_REST.match(source.file.content, after)
        if indent is None or follows is None:
            return (inserted(source, after, f", {text}"),)
        return (inserted(source, after, f",{source.newline.decode()}{indent}{text}"),)
    indent = _own_line(source, last)
    rest = _LINE_REST_OR_COMMENT.match(source.file.content, after, closing)
    if indent is None or rest is None:
        return (inserted(source, after, f" {text},"),)
    return (inserted(source, rest.end(), f"{source.newline.decode()}{indent}{text},"),)


def _after(content: bytes, start: int, closing: int) -> tuple[int, bool]:
    """The byte after an argument, its parentheses and its comma; whether there is one."""
    at, after, has_comma = start, start, False
    while at < closing and (piece := _PIECE.match(content, at, closing)):
        if piece[0] in (b",", b")"):
            after, has_comma = piece.end(), piece[0] == b","
        at = piece.end()
    return after, has_comma


def _own_line(source: SourceText, node: ast.expr | ast.keyword) -> str | None:
    """The indentation of a node that is the first of its line; None: it is not."""
    start = source.start(node)
    before = source.file.content[source.starts[node.lineno - 1] : start]
    return before.decode() if not before.strip() else None


def line_before(source: SourceText, statement: ast.stmt, text: str) -> Edits:
    """`text` as a statement of its own before another one."""
    start = source.start(statement)
    before = source.file.content[source.starts[statement.lineno - 1] : start]
    if before.strip():  # `if x: statement`, or after a semicolon
        return ()
    return (inserted(source, start, f"{text}{source.newline.decode()}{before.decode()}"),)


def line_after(source: SourceText, statement: ast.stmt, text: str) -> Edits:
    """`text` as a statement of its own after another one, on whose line no other stands."""
    before = source.file.content[source.starts[statement.lineno - 1] : source.start(statement)]
    rest = _LINE_REST_OR_COMMENT.match(source.file.content, source.end(statement))
    at_end = not source.file.content[source.end(statement) :].strip()
    if before.strip() or (rest is None and not at_end):
        return ()
    end = rest.end() if rest is not None else source.end(statement)
    return (inserted(source, end, f"{source.newline.decode()}{before.decode()}{text}"),)
