"""The subset of Prometheus' Go templates that alert labels and annotations use.

A template is text with actions: `{{ $labels.run }}`, `{{ $value }}` and `{{ . }}`, each
optionally formatted by a `humanize` function or `printf`, and the blocks `if` and `with`,
which may have an `else`. All other features are refused when the rule is loaded, so that no
template can fail, or differ from Prometheus, when an alert fires.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ldlm_monitor.alerts.humanize import FILTERS, go_float, go_format
from ldlm_monitor.model.errors import RuleError
from ldlm_monitor.text.sanitize import shorten


@dataclass(frozen=True, slots=True)
class _Scope:
    """The data of one expansion: an alert's labels and value, and the value of `.` in a `with`."""

    labels: Mapping[str, str]
    value: float
    dot: str | float = ""


_Read: TypeAlias = Callable[[_Scope], str | float]


@dataclass(frozen=True, slots=True)
class _Operand:
    """An expression: `read` returns its value; by `kind` the parser refuses a wrong use."""

    kind: Literal["text", "number"]
    read: _Read


@dataclass(frozen=True, slots=True)
class _Branch:
    """An `if`, or with `rebind` a `with`, which sets `.`; `then` or `otherwise` is expanded."""

    condition: _Operand
    rebind: bool
    then: tuple["_Part", ...]
    otherwise: tuple["_Part", ...]


_Part: TypeAlias = str | _Operand | _Branch


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template; `source` is its text."""

    source: str
    parts: tuple[_Part, ...]

    @classmethod
    def parse(cls, source: str) -> "Template":
        """Parse a template. Raises RuleError for a mistake or a feature that is not supported."""
        return cls(source, _TemplateParser(source).parse())

    def expand(self, labels: Mapping[str, str], value: float) -> str:
        """The text for an alert's labels and value; a label that is missing is empty."""
        if len(self.parts) == 1 and isinstance(self.parts[0], str):
            return self.parts[0]
        return _render(self.parts, _Scope(labels, value))


def _render(parts: tuple[_Part, ...], scope: _Scope) -> str:
    shown: list[str] = []
    for part in parts:
        if isinstance(part, str):
            shown.append(part)
        elif isinstance(part, _Operand):
            result = part.read(scope)
            shown.append(result if isinstance(result, str) else go_float(result))
        elif found := part.condition.read(scope):  # NaN is true, as in Go
            inner = _Scope(scope.labels, scope.value, found) if part.rebind else scope
            shown.append(_render(part.then, inner))
        else:
            shown.append(_render(part.otherwise, scope))
    return "".join(shown)


# The syntax of Go's `text/template`. An action with its trim marks:
_ACTION = re.compile(
    r"\{\{(?P<left>- )?(?P<body>(?:\"(?:[^\"\\]|\\.)*\"|`[^`]*`|[^}])*?)(?P<right> -)?\}\}",
    re.DOTALL,
)
# A token of an action: a pipe, a string literal, or a word.
_TOKEN = re.compile(r'\s*(?:(\|)|("(?:[^"\\]|\\.)*"|`[^`]*`)|([^\s|"`]+))')
_LABEL = re.compile(r"(?:\$labels|\$?\.Labels)\.([a-zA-Z_][a-zA-Z0-9_]*)")  # a label's value
_VALUES = frozenset({"$value", ".Value", "$.Value"})  # the spellings of the alert's value
_VERBS = re.compile(r"%(?:%|[-+0 ]*\d*(?:\.\d*)?([a-zA-Z]))")  # of `printf`; group 1: the letter
_SPACE = " \t\r\n"  # what Go trims beside `{{-` and `-}}`
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}  # Go's, as far as they are supported
_SHOWN = 80  # characters of a template in an error. A choice: more show more, fewer fit a line


class _TemplateParser:
    """Parses one template by recursive descent over its texts and actions."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._pieces = _split(source)
        self._next = 0
        self._kinds: list[Literal["text", "number"]] = []
        """The type of `.` in each `with` that is open, the innermost last."""

    def parse(self) -> tuple[_Part, ...]:
        parts, stop = self._sequence()
        if stop is not None:
            raise _wrong(f"{{{{ {stop} }}}} without a block", self._source)
        return parts

    def _sequence(self) -> tuple[tuple[_Part, ...], str | None]:
        """Parts up to an `else` or `end`, and its whole action; None if the template ends first."""
        parts: list[_Part] = []
        while self._next < len(self._pieces):
            is_action, text = self._pieces[self._next]
            self._next += 1
            if not is_action:
                parts.append(text)
                continue
            word, _, rest = text.partition(" ")
            if word in {"else", "end"}:
                return tuple(parts), text
            if word in {"if", "with"}:
                parts.append(self._block(word, rest))
            else:
                parts.append(self._pipeline(text))
        return tuple(parts), None

    def _block(self, word: str, rest: str) -> _Branch:
        condition = self._pipeline(rest)
        rebind = word == "with"
        if rebind:
            self._kinds.append(condition.kind)
        then, stop = self._sequence()
        if rebind:
            self._kinds.pop()
        otherwise: tuple[_Part, ...] = ()
        if stop is not None and stop.startswith("else if ") and not rebind:
            return _Branch(condition, rebind, then, (self._block("if", stop[8:]),))
        if stop == "else":
            otherwise, stop = self._sequence()
        if stop != "end":
            raise _wrong(f"{{{{ {word} }}}} is closed by {stop or 'nothing'}", self._source)
        return _Branch(condition, rebind, then, otherwise)

    def _pipeline(self, text: str) -> _Operand:
        commands: list[list[str]] = [[]]
        position = 0
        while position < len(text.rstrip()):
            found = _TOKEN.match(text, position)
            if found is None:
                raise _refused(text, self._source)
            position = found.end()
            if found[1]:
                commands.append([])
            else:
                commands[-1].append(found[2] or found[3])
        operand: _Operand | None = None
        for words in commands:
            operand = self._command(words, operand, text)
        assert operand is not None
        return operand

    def _command(self, words: list[str], piped: _Operand | None, text: str) -> _Operand:
        if not words:
            raise _refused(f"{{{{ {text} }}}}", self._source)
        name, arguments = words[0], words[1:]
        if name == "printf" and arguments:
            given = [self._operand(word) for word in arguments[1:]]
            return self._printf(arguments[0], [*given, *([piped] if piped else [])])
        if name in FILTERS:
            given = [self._operand(word) for word in arguments] + ([piped] if piped else [])
            if len(given) != 1 or given[0].kind != "number":
                raise _refused(f"{name} without exactly one number", self._source)
            shown, read = FILTERS[name], given[0].read
            return _Operand("text", lambda scope: shown(float(read(scope))))
        if arguments or piped:
            raise _refused(name, self._source)
        return self._operand(name)

    def _operand(self, word: str) -> _Operand:
        label = _LABEL.fullmatch(word)
        if label is not None and self._reachable(word):
            name = label[1]
            return _Operand("text", lambda scope: scope.labels.get(name, ""))
        if word in _VALUES and self._reachable(word):
            return _Operand("number", lambda scope: scope.value)
        if word == "." and self._kinds:
            return _Operand(self._kinds[-1], lambda scope: scope.dot)
        if word[0] in '"`':
            text = _unquoted(word, self._source)
            return _Operand("text", lambda scope: text)
        raise _refused(word, self._source)

    def _reachable(self, word: str) -> bool:
        """Whether a word reads the alert: in a `with`, which sets `.`, only words with `$` do."""
        return word[0] == "$" or not self._kinds

    def _printf(self, quoted: str, operands: list[_Operand]) -> _Operand:
        if quoted[0] not in '"`':
            raise _refused("printf without a literal format", self._source)
        template = _unquoted(quoted, self._source)
        verbs = [found for found in _VERBS.finditer(template) if found[1]]
        if template.count("%") != sum(
            found[0].count("%") for found in _VERBS.finditer(template)
        ) or len(verbs) != len(operands):
            raise _refused(f"printf {quoted} with {len(operands)} values", self._source)
        for found, operand in zip(verbs, operands, strict=True):
            if not _fits(found[0], operand.kind):
                raise _refused(f"printf verb {found[0]} of a {operand.kind}", self._source)
        return _Operand("text", _formatter(template, operands))


def _fits(verb: str, kind: Literal["text", "number"]) -> bool:
    """Whether Go and Python format a value of this kind equally with the verb."""
    if verb == "%v":
        return True
    if kind == "text":
        return re.fullmatch(r"%-?(?:[1-9]\d*)?(?:\.\d+)?s", verb) is not None
    return verb == "%g" or verb[-1] in "ef" or (verb[-1] == "g" and "." in verb)


def _formatter(template: str, operands: list[_Operand]) -> _Read:
    def formatted(scope: _Scope) -> str:
        values = iter(operands)

        def shown(found: re.Match[str]) -> str:
            if not found[1]:
                return "%"
            value = next(values).read(scope)
            if isinstance(value, str):
                return value if found[1] == "v" else found[0] % value
            return go_float(value) if found[1] == "v" else go_format(found[0], value)

        return _VERBS.sub(shown, template)

    return formatted


def _split(source: str) -> list[tuple[bool, str]]:
    """The pieces of a template in order: whether a piece is an action, and its text."""
    pieces: list[tuple[bool, str]] = []
    position, trim = 0, False
    for found in _ACTION.finditer(source):
        text = source[position : found.start()]
        text = text.lstrip(_SPACE) if trim else text
        text = text.rstrip(_SPACE) if found["left"] else text
        if text:
            pieces.append((False, text))
        trim = found["right"] is not None
        position = found.end()
        body = found["body"].strip()
        if '"' not in body:
            body = " ".join(body.split())
        if not (body.startswith("/*") and body.endswith("*/")):
            pieces.append((True, body))
    rest = source[position:]
    rest = rest.lstrip(_SPACE) if trim else rest
    if "{{" in rest:
        raise _wrong("{{ is not closed", source)
    if rest:
        pieces.append((False, rest))
    return pieces


def _unquoted(word: str, source: str) -> str:
    if word[0] == "`":
        return word[1:-1]

    def plain(found: re.Match[str]) -> str:
        if found[1] not in _ESCAPES:
            raise _refused(f"the escape {found[0]}", source)
        return _ESCAPES[found[1]]

    return re.sub(r"\\(.)", plain, word[1:-1], flags=re.DOTALL)


def _refused(feature: str, source: str) -> RuleError:
    remedy = "use $labels.NAME, $value, humanize*, printf, if and with"
    return _wrong(f"template feature {feature} is not supported", source, remedy)


def _wrong(what: str, source: str, remedy: str = "see Go's text/template") -> RuleError:
    shown = shorten(" ".join(source.split()), _SHOWN)
    return RuleError(what, where=f"template {shown!r}", remedy=remedy)
