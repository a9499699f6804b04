"""Edits that change as few bytes as can be, and leave comments and layout as they are.

Edits of several findings may stand at one byte; each is written so that they can follow
one another there in any order.
"""

from __future__ import annotations

import ast
import re

from ldlm_doctor.model import Edit
from ldlm_doctor.python_code.module import Module
from ldlm_doctor.python_code.tree import last_name

_PIECE = re.compile(rb"#[^\r\n]*|[,)]|\s+|\\")


def replaced(module: Module, node: ast.expr | ast.stmt, text: str) -> Edit:
    """The node becomes `text`."""
    return Edit(module.file.path, module.start(node), module.end(node), text.encode())


def inserted(module: Module, at: int, text: str) -> Edit:
    """`text` before byte `at`."""
    return Edit(module.file.path, at, at, text.encode())


def keyword_added(module: Module, call: ast.Call, text: str) -> tuple[Edit, ...]:
    """`text`, such as `a=1`, becomes the last argument of a call that has some already."""
    closing = module.end(call) - 1
    given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    if not given:
        return ()
    last = max(given, key=module.end)
    after, has_comma = _after(module.file.content, module.end(last), closing)
    if not has_comma:
        indent = _own_line(module, last)
        follows = _LINE_REST.match(module.file.content, after)
        if indent is None or follows is None:
            return (inserted(module, after, f", {text}"),)
        return (inserted(module, after, f",{module.newline.decode()}{indent}{text}"),)
    indent = _own_line(module, last)
    rest = _LINE_REST_OR_COMMENT.match(module.file.content, after, closing)
    if indent is None or rest is None:
        return (inserted(module, after, f" {text},"),)
    return (inserted(module, rest.end(), f"{module.newline.decode()}{indent}{text},"),)


_LINE_REST = re.compile(rb"[ \t]*(?=[\r\n])")
_LINE_REST_OR_COMMENT = re.compile(rb"[ \t]*(?:#[^\r\n]*)?(?=[\r\n])")


def _after(content: bytes, start: int, closing: int) -> tuple[int, bool]:
    """The byte after an argument, its parentheses and its comma; whether there is one."""
    at, after, has_comma = start, start, False
    while at < closing and (piece := _PIECE.match(content, at, closing)):
        if piece[0] in (b",", b")"):
            after, has_comma = piece.end(), piece[0] == b","
        at = piece.end()
    return after, has_comma


def _own_line(module: Module, node: ast.expr | ast.keyword) -> str | None:
    """The indentation of a node that is the first of its line; None: it is not."""
    start = module.start(node)
    before = module.file.content[module.starts[node.lineno - 1] : start]
    return before.decode() if not before.strip() else None


def line_before(module: Module, statement: ast.stmt, text: str) -> tuple[Edit, ...]:
    """`text` as a statement of its own before another one."""
    start = module.start(statement)
    before = module.file.content[module.starts[statement.lineno - 1] : start]
    if before.strip():  # `if x: statement`, or after a semicolon
        return ()
    return (inserted(module, start, f"{text}{module.newline.decode()}{before.decode()}"),)


def line_after(module: Module, statement: ast.stmt, text: str) -> tuple[Edit, ...]:
    """`text` as a statement of its own after another one, on whose line no other stands."""
    before = module.file.content[module.starts[statement.lineno - 1] : module.start(statement)]
    rest = _LINE_REST_OR_COMMENT.match(module.file.content, module.end(statement))
    at_end = not module.file.content[module.end(statement) :].strip()
    if before.strip() or (rest is None and not at_end):
        return ()
    end = rest.end() if rest is not None else module.end(statement)
    return (inserted(module, end, f"{module.newline.decode()}{before.decode()}{text}"),)


def can_be_repeated(node: ast.expr) -> bool:
    """To compute it twice gives the same twice: lookups and bounds, on one line."""
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
    plain = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
    return (
        isinstance(node, plain)
        and node.lineno == node.end_lineno
        and all(last_name(call.func) in ("get", "getattr", "min", "max", "int") for call in calls)
    )
