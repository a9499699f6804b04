"""Executes the tree of a template as Go does (`text/template/exec.go`), in bounded time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ldlm_promrules.samples import VectorSample
from ldlm_promrules.templates.go_print import MAX_TEXT, Struct, shown, type_name
from ldlm_promrules.templates.go_time import METHODS
from ldlm_promrules.templates.template_functions import FUNCTIONS, SAMPLE, Callee, is_true, missing
from ldlm_promrules.templates.template_tree import (
    Branch,
    Constant,
    Function,
    Include,
    Leave,
    Nodes,
    Operand,
    Pipe,
    Read,
)

MAX_STEPS = 20_000
"""Nodes and elements that an expansion visits; 64 characters of a text count for one. A choice: a
rule's annotation takes tens, and 20,000 some 20 ms."""
_QUERY_STEPS = 500  # that a `query` counts for: 40 of them are the most that one expansion makes
_MAX_INCLUDES = 20  # templates within each other. A choice, for Python's stack
_DATA = ("Labels", "ExternalLabels", "ExternalURL", "Value")  # the fields of the first `.`
VARIABLES = ("$labels", "$externalLabels", "$externalURL", "$value")  # equal to them, in order
_DYNAMIC = ("query", "now", "externalURL", "pathPrefix", "and", "or")  # see `Expansion._own`
NAMES = frozenset({*FUNCTIONS, *_DYNAMIC})  # of all functions
_NOTHING = object()  # no value comes from a pipe; nil would be one


def _no_query(text: str, at: float) -> Sequence[VectorSample]:
    raise ValueError(f"query {text!r} at {at}: there is nothing to ask")


@dataclass(frozen=True, slots=True)
class Context:
    """What a template can read beside its alert; `query` evaluates a text at Unix seconds."""

    query: Callable[[str, float], Sequence[VectorSample]] = _no_query
    external_labels: Mapping[str, str] = field(default_factory=dict)
    external_url: str = ""


NO_CONTEXT = Context()


class _Leaving(Exception):  # noqa: N818 - no error: `break` or `continue`
    def __init__(self, word: str) -> None:
        self.word = word


class Expansion:
    """One expansion at a time (Unix seconds). `templates`: those that the template defines."""

    def __init__(self, templates: Mapping[str, Nodes], at: float, context: Context) -> None:
        self._templates = templates
        self._at = at
        self._context = context
        self._steps = self._length = self._depth = 0
        self._variables: list[tuple[str, Any]] = []
        self._parts: list[str] = []

    def text(self, nodes: Nodes, labels: Mapping[str, str], value: float) -> str:
        """The text of a template for an alert. Raises ValueError for any error, also in `query`."""
        given = (dict(labels), dict(self._context.external_labels), self._context.external_url)
        dot = Struct("struct", dict(zip(_DATA, (*given, float(value)), strict=True)))
        self._variables = [("$", dot), *zip(VARIABLES, dot.fields.values(), strict=True)]
        self._walk(dot, nodes)
        return "".join(self._parts)

    def _step(self, steps: int = 1) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise ValueError(f"it takes more than {MAX_STEPS} steps")

    def _write(self, text: str) -> None:
        self._length += len(text)
        if self._length > MAX_TEXT:
            raise ValueError(f"its text is longer than {MAX_TEXT} characters")
        self._parts.append(text)

    def _walk(self, dot: Any, nodes: Nodes) -> None:
        for node in nodes:
            self._step()
            match node:
                case str():
                    self._write(node)
                case Pipe():
                    value = self._piped(dot, node)
                    if not node.names:
                        self._write("<no value>" if value is None else shown(value))
                case Branch():
                    known = len(self._variables)
                    self._block(dot, node)
                    del self._variables[known:]
                case Include():
                    self._include(dot, node)
                case Leave():
                    raise _Leaving(node.word)

    def _include(self, dot: Any, node: Include) -> None:
        if node.name not in self._templates:
            raise ValueError(f"template {node.name!r} is not defined")
        inner = None if node.pipe is None else self._piped(dot, node.pipe)
        self._depth += 1
        if self._depth > _MAX_INCLUDES:
            raise ValueError(f"templates within each other, more than {_MAX_INCLUDES}")
        outside, self._variables = self._variables, [("$", inner)]
        self._walk(inner, self._templates[node.name])
        self._variables = outside
        self._depth -= 1

    def _block(self, dot: Any, node: Branch) -> None:
        if node.word == "range":
            self._range(dot, node)
            return
        value = self._piped(dot, node.pipe)
        if is_true(value):
            self._walk(value if node.word == "with" else dot, node.then)
        else:
            self._walk(dot, node.otherwise)

    def _range(self, dot: Any, node: Branch) -> None:
        names = node.pipe.names
        empty = True
        known = len(self._variables)
        for key, element in _elements(self._piped(dot, node.pipe, bind=False)):
            empty = False
            self._step()
            for name, value in zip(names, (key, element)[-len(names) :], strict=bool(names)):
                self._bind(name, value, assigns=node.pipe.assigns)
            try:
                self._walk(element, node.then)
            except _Leaving as leaving:
                if leaving.word == "break":
                    break
            finally:
                del self._variables[known:]
        if empty:
            self._walk(dot, node.otherwise)

    def _bind(self, name: str, value: Any, *, assigns: bool) -> None:
        if not assigns:
            self._variables.append((name, value))
            return
        index = self._index_of(name)
        self._variables[index] = name, value

    def _index_of(self, name: str) -> int:
        for index in range(len(self._variables) - 1, -1, -1):
            if self._variables[index][0] == name:
                return index
        raise ValueError(f"undefined variable: {name}")

    def _piped(self, dot: Any, pipe: Pipe, *, bind: bool = True) -> Any:
        value: Any = _NOTHING
        for command in pipe.commands:
            value = self._command(dot, command, value)
        for name in pipe.names if bind else ():
            self._bind(name, value, assigns=pipe.assigns)
        return value

    def _command(self, dot: Any, command: tuple[Operand, ...], last: Any) -> Any:
        first, *rest = command
        if isinstance(first, Function):
            return self._call(dot, first.name, rest, last)
        if isinstance(first, Constant) and first.value is None:
            raise ValueError("nil is not a command")
        given = [*(self._value(dot, each) for each in rest), *([] if last is _NOTHING else [last])]
        if given and not (isinstance(first, Read) and first.fields):
            raise ValueError("a value that is no function is given an argument")
        return self._value(dot, first, given)

    def _value(self, dot: Any, operand: Operand, given: Sequence[Any] = ()) -> Any:
        self._step()
        match operand:
            case Constant(value):
                return value
            case Function(name):
                return self._call(dot, name, (), _NOTHING)
            case Pipe():
                return self._piped(dot, operand)
        if operand.of == ".":
            value = dot
        elif isinstance(operand.of, str):
            value = self._variables[self._index_of(operand.of)][1]
        else:
            value = self._value(dot, operand.of)
        for number, name in enumerate(operand.fields, 1):
            value = _field(value, name, given if number == len(operand.fields) else ())
        return value

    def _call(self, dot: Any, name: str, operands: Sequence[Operand], last: Any) -> Any:
        given = (self._value(dot, each) for each in operands)
        if name in ("and", "or"):
            return _first_of(given, last, stops_at=name == "or")
        found = list(given)
        if last is not _NOTHING:
            found.append(last)
        # GoTime that grows with a text is bounded like the steps.
        self._step(1 + sum(len(each) for each in found if isinstance(each, str)) // 64)
        result = (FUNCTIONS.get(name) or self._own(name))(name, *found)
        if isinstance(result, str):
            self._step(len(result) // 64)
            if len(result) > MAX_TEXT:
                raise ValueError(f"{name}: a text longer than {MAX_TEXT} characters")
        return result

    def _own(self, name: str) -> Callee:
        if name == "query":
            return Callee(("string",), self._query)
        url = self._context.external_url
        values = {"now": self._at, "externalURL": url, "pathPrefix": urlsplit(url).path}
        return Callee((), lambda: values[name])

    def _query(self, text: str) -> list[Struct]:
        self._step(_QUERY_STEPS)
        return [
            Struct(SAMPLE, {"Labels": dict(each.labels), "Value": each.value})
            for each in self._context.query(text, self._at)
        ]


def _elements(value: Any) -> Iterator[tuple[Any, Any]]:
    """The keys and elements that `range` visits."""
    if isinstance(value, dict):
        yield from sorted(value.items())
    elif isinstance(value, list):
        yield from enumerate(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from ((number, number) for number in range(value))
    elif value is not None:
        raise ValueError(f"range can't iterate over {shown(value)}")


def _field(value: Any, name: str, given: Sequence[Any]) -> Any:
    methods = METHODS.get(type(value), {})
    if name in methods:
        try:
            return methods[name](value, *given)
        except (TypeError, AttributeError):
            raise ValueError(f"{name}: wrong arguments") from None
    if given:
        raise ValueError(f"{name} is not a method but has arguments")
    if isinstance(value, dict):
        return value.get(name, missing(value))
    if isinstance(value, Struct) and name in value.fields:
        return value.fields[name]
    raise ValueError(f"can't evaluate field {name} in type {type_name(value)}")


def _first_of(values: Iterator[Any], last: Any, *, stops_at: bool) -> Any:
    """The first value whose truth is `stops_at`, or the last one: `and`, `or`."""
    found: Any = _NOTHING
    for found in values:
        if is_true(found) is stops_at:
            return found
    if last is not _NOTHING:
        return last
    if found is _NOTHING:
        raise ValueError("wrong number of args for and, or: want at least 1 got 0")
    return found
