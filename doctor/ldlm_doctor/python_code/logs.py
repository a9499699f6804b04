"""Log files that a resumed run empties."""

from __future__ import annotations

import ast
import re

from ldlm_doctor.model import Edit, Edits, Findings
from ldlm_doctor.python_code.expressions import last_name, words_in
from ldlm_doctor.python_code.module import Module, matching
from ldlm_doctor.python_code.program import Program
from ldlm_doctor.python_code.source_text import replaced
from ldlm_doctor.python_code.tree import inside
from ldlm_doctor.python_code.values import arguments, constant

_LOG = re.compile(
    r"(^|[_./-])(train(ing)?_?)?(log|logs|logfile|log_?file|metrics|history|losses|loss_log|progress)"
    r"(_?(file|path|f|fp|handle|fd))?(\.(txt|log|json|jsonl|csv|tsv))?$|\.(log|jsonl)$",
    re.I,
)
_RESUME = re.compile(
    r"resum|init_from|load_checkpoint|restart|start_(step|epoch|iter)|continue_from", re.I
)
_GUARD = re.compile(
    r"resum|init_from|exists|is_file|isfile|start_|restart|append|fresh|overwrite|load|continue",
    re.I,
)
_AFTERWARDS = re.compile(
    r"eval|valid|test|plot|export|report|dump|summary|result|sample|convert|save", re.I
)
_LINE_WRITERS = {"writer", "DictWriter", "StreamHandler", "Tee"}
_WRITES = ("write", "writerow", "writeheader")
_FRESH = {"strftime", "now", "utcnow", "today", "time", "uuid1", "uuid4", "mkdtemp"}
_DEEPEST = 4
"""Names that stand for one another are followed so far: paths are put together in fewer steps."""
_HANDLERS = frozenset({"logging.FileHandler", "logging.basicConfig"})


def inspect(module: Module, program: Program) -> Findings:
    """Each file of a program that trains and resumes which is truncated."""
    if not program.trains(module) or not program.any_relative(matching(_RESUME), module):
        return
    for call in module.calls:
        found = _emptied(module, call)
        if found is None:
            continue
        path, edits = found
        if _LOG.search(_file_name(module, path)) and not (
            _is_guarded(module, call) or _is_of_its_own_run(module, path)
        ):
            yield module.finding("log-truncated-at-resume", call, edits=edits)


def _emptied(module: Module, call: ast.Call) -> tuple[ast.expr, Edits] | None:
    """The path of a file that a call empties, with what would not."""
    match call:
        case ast.Call(func=ast.Name(id="open"), args=[path, *_]):
            return _opened(module, call, path, ("file", "mode"))
        case ast.Call(func=ast.Attribute(attr="open", value=path), args=[*_]) if not (
            module.resolve(call.func).startswith(("os.", "io.", "gzip.", "tarfile.", "webbrowser."))
        ):
            return _opened(module, call, path, ("mode",))
        case ast.Call(
            func=ast.Attribute(attr="write_text", value=path),
            args=[ast.Constant(value="")],
            keywords=[],
        ):
            start = module.end(call.func) - len("write_text")
            return path, (Edit(module.file.path, start, module.end(call), b"touch()"),)
        case ast.Call() if module.means(call.func, _HANDLERS):
            given = arguments(module, call, ("filename", "mode"))
            path_, mode = given["filename"], given["mode"] or given["filemode"]
            if path_ is not None and mode is not None and constant(module, mode) == "w":
                edits = (replaced(module, mode, '"a"'),) if isinstance(mode, ast.Constant) else ()
                return path_, edits
    return None


def _opened(
    module: Module, call: ast.Call, path: ast.expr, positional: tuple[str, ...]
) -> tuple[ast.expr, Edits] | None:
    mode = arguments(module, call, positional)["mode"]
    if not isinstance(mode, ast.Constant) or mode.value not in ("w", "wt", "w+"):
        return None
    written = module.text(mode)
    parent = module.parents[call]
    table = re.search(r"\.[ct]sv", _file_name(module, path)) is not None
    has_header = table
    if isinstance(parent, ast.withitem):
        body = getattr(module.statement(parent), "body", [])
        if not _grows(body):
            return None
        has_header = table or not isinstance(body[0], ast.Pass)
    elif isinstance(parent, ast.Call):
        if last_name(parent.func) not in _LINE_WRITERS:
            return None
    elif not isinstance(parent, ast.Assign | ast.Attribute):
        return None
    # A header would stand in the middle of a file that is appended to.
    edits = () if has_header else (replaced(module, mode, written.replace("w", "a")),)
    return path, edits


def _grows(body: list[ast.stmt]) -> bool:
    """The file is emptied, gets a header or is written to in a loop: it is no one text."""
    if all(isinstance(statement, ast.Pass) for statement in body):
        return True
    for node in inside(body):
        if isinstance(node, ast.For | ast.While):
            return any(isinstance(c, ast.Attribute) and c.attr == "step" for c in ast.walk(node))
        if isinstance(node, ast.Call) and last_name(node.func) in _WRITES:
            return all(_is_header(argument) for argument in node.args)
    return False


def _is_header(node: ast.expr) -> bool:
    """Text that is the same in every run."""
    if isinstance(node, ast.List | ast.Tuple):
        return all(_is_header(each) for each in node.elts)
    return isinstance(node, ast.Constant)


def _file_name(module: Module, path: ast.expr) -> str:
    """The last part of a path: what a constant ends in, or the name of a variable."""
    match path:
        case ast.Constant(value=str() as text):
            return text.rpartition("/")[2]
        case ast.BinOp(op=ast.Div() | ast.Add(), right=right):
            return _file_name(module, right)
        case ast.Call(args=[*_, last]) if last_name(path.func) in ("join", "Path", "str"):
            return _file_name(module, last)
        case ast.JoinedStr(values=[*_, ast.Constant(value=str() as text)]):
            return text.rpartition("/")[2]
        case ast.Name():
            bound = module.bound(path)
            its = _file_name(module, bound) if bound is not None else ""
            return its if "." in its else path.id
        case ast.Attribute():
            return path.attr
    return ""


def _is_of_its_own_run(module: Module, path: ast.expr, depth: int = 0) -> bool:
    """Each start has a path of its own: the time or a random number is in it."""
    for part in ast.walk(path):
        if isinstance(part, ast.Call) and last_name(part.func) in _FRESH:
            return True
        if isinstance(part, ast.Name) and depth < _DEEPEST:
            bound = module.bound(part)
            if bound is not None and _is_of_its_own_run(module, bound, depth + 1):
                return True
    return False


def _is_guarded(module: Module, call: ast.Call) -> bool:
    """The file is emptied only under a condition, or after the training."""
    for outer in module.above(call):
        if isinstance(outer, ast.If) and any(map(_GUARD.search, words_in(outer.test))):
            return True
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef):
            return bool(_AFTERWARDS.search(outer.name))
        if isinstance(outer, ast.For | ast.While):
            return True
    return False
