"""The bytes of a Python file, and where the nodes of its syntax tree stand in them."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from functools import cached_property

from ldlm_doctor.model import Edit, Finding, SourceFile, with_edits

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"
_LONGEST_EVIDENCE = 400


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
        edits: tuple[Edit, ...] = (),
    ) -> Finding:
        """A finding at a node, or at a line. Edits that do not give Python are left out."""
        line = node if isinstance(node, int) else node.lineno
        text = b"".join(self.line_bytes(line, line + 1)).decode("utf-8", "replace")
        evidence = text.lstrip("\ufeff").strip()
        if edits and not self._still_python(edits):
            edits = ()
        return Finding(check, self.file.path, line, evidence[:_LONGEST_EVIDENCE], detail, edits)

    def _still_python(self, edits: tuple[Edit, ...]) -> bool:
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
