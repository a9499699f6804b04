"""The functions of Prometheus' templates: Go's (`text/template/funcs.go`) and its own
(`template/template.go`). Each raises ValueError where Prometheus' reports an error.
"""

import html
import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote_plus

import re2

from ldlm_promrules.durations import parse_duration
from ldlm_promrules.golang import expanded
from ldlm_promrules.templates.go_print import (
    MAX_TEXT,
    AnyMap,
    Struct,
    shown,
    sprint,
    sprintf,
    sprintln,
    type_name,
)
from ldlm_promrules.templates.go_time import GoDuration, GoTime
from ldlm_promrules.templates.humanize import FILTERS

SAMPLE = "*template.sample"  # the type of an element of `query`'s result
_PATTERN_MEMORY = 1 << 20  # bytes of a compiled pattern. A choice: the patterns of rules are short
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?inf(?:inity)?|nan", re.I)
_JS = {
    "\\": r"\\", "'": r"\'", '"': r"\"", "<": r"\u003C", ">": r"\u003E", "&": r"\u0026",
    "=": r"\u003D",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Callee:
    """A function of templates. `takes`: its parameters' types; the last may end in `...`."""

    takes: tuple[str, ...]
    call: Callable[..., Any]

    def __call__(self, name: str, *given: Any) -> Any:
        """Call it as `name`. Raises ValueError for arguments that Go would refuse."""
        takes = self.takes
        if takes and takes[-1].endswith("..."):
            takes = (*takes[:-1], *[takes[-1][:-3]] * (len(given) - len(takes) + 1))
        if len(given) != len(takes):
            raise ValueError(f"wrong number of args for {name}: {len(given)}, not {len(takes)}")
        for value, kind in zip(given, takes, strict=True):
            if kind != "any" and type_name(value) != kind:
                raise ValueError(f"{name}: expected {kind}; got {type_name(value)}")
        return self.call(*given)


def is_true(value: Any) -> bool:
    """Go's truth: what is neither zero, empty nor nil; NaN is true."""
    return isinstance(value, Struct | GoTime | GoDuration) or bool(value)


def _basic(value: Any) -> str:
    kind = type_name(value)
    return kind if kind in ("bool", "int", "float64", "string") else ""


def _equal(first: Any, *others: Any) -> bool:
    for other in others:
        if _basic(first) != _basic(other) and first is not None and other is not None:
            raise ValueError("incompatible types for comparison")
        if not _basic(first) and isinstance(first, dict | list):
            raise ValueError(f"non-comparable type {type_name(first)}")
        if first == other:
            return True
    if not others:
        raise ValueError("missing argument for comparison")
    return False


def _less(left: Any, right: Any) -> bool:
    if _basic(left) != _basic(right):
        raise ValueError("incompatible types for comparison")
    if _basic(left) in ("", "bool"):
        raise ValueError("invalid type for comparison")
    return bool(left < right)


def _less_or_equal(left: Any, right: Any) -> bool:
    return _less(left, right) or bool(left == right)


def _index(item: Any, *keys: Any) -> Any:
    for key in keys:
        if isinstance(item, dict):
            if not isinstance(key, str):
                raise ValueError(f"index: value has type {type_name(key)}; should be string")
            item = item.get(key, missing(item))
        elif isinstance(item, str | list):
            if not isinstance(key, int) or isinstance(key, bool):
                raise ValueError(f"cannot index slice/array with type {type_name(key)}")
            inside = item.encode("utf-8", "replace") if isinstance(item, str) else item
            if not 0 <= key < len(inside):
                raise ValueError(f"index out of range: {key}")
            item = inside[key]
        else:
            raise ValueError(f"can't index item of type {type_name(item)}")
    return item


def _slice(item: Any, *ends: Any) -> Any:
    inside = item.encode("utf-8", "replace") if isinstance(item, str) else item
    if not isinstance(inside, bytes | list) or len(ends) > (3 if isinstance(item, list) else 2):
        raise ValueError(f"cannot slice {type_name(item)} by {len(ends)} indexes")
    start = ends[0] if ends else 0
    end = ends[1] if len(ends) > 1 else len(inside)
    if not all(isinstance(each, int) for each in ends) or not 0 <= start <= end <= len(inside):
        raise ValueError("slice: index out of range")
    found = inside[start:end]
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else found


def missing(item: Mapping[str, Any]) -> Any:
    """The value of a key that a map lacks: `missingkey=zero`."""
    return None if isinstance(item, AnyMap) else ""


def _length(item: Any) -> int:
    if not isinstance(item, str | dict | list):
        raise ValueError(f"len of type {type_name(item)}")
    return len(item.encode("utf-8", "replace") if isinstance(item, str) else item)


def _joined(*values: Any) -> str:
    return sprint(*("<no value>" if value is None else value for value in values))


def _escaped_html(*values: Any) -> str:
    text = html.escape(_joined(*values)).replace("\0", "\ufffd")
    return text.replace("&quot;", "&#34;").replace("&#x27;", "&#39;")


def _escaped_js(*values: Any) -> str:
    text = _joined(*values)
    return "".join(
        _JS.get(each) or (each if each.isprintable() else f"\\u{ord(each):04X}") for each in text
    )


def _query_escaped(*values: Any) -> str:
    return quote_plus(_joined(*values).encode("utf-8", "replace"))


def _no_call(function: Any, *_: Any) -> Any:
    raise ValueError(f"non-function {shown(function)} of type {type_name(function)}")


def to_float(value: Any) -> float:
    """Prometheus' `ConvertToFloat`."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value)
    if isinstance(value, GoDuration):
        return value.seconds
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"can't convert {type_name(value)} {shown(value)} to float")
    return float(value)


@lru_cache(maxsize=64)  # entries. A choice: memory, or compiling the pattern of a rule again
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors, options.max_mem = False, _PATTERN_MEMORY
    try:
        return re2.compile(pattern, options)
    except re2.error as problem:
        raise ValueError(f"invalid regular expression {pattern!r}") from problem


def _replaced(pattern: str, template: str, text: str) -> str:
    parts, last, length = [], 0, len(text)
    for found in _compiled(pattern).finditer(text):
        parts.append(text[last : found.start()])
        if found.end() > last or found.start() == 0:  # no empty match right after another match
            length += len(template) + template.count("$") * (found.end() - found.start())
            if length > MAX_TEXT:
                raise ValueError(f"reReplaceAll: a text longer than {MAX_TEXT} characters")
            parts.append(expanded(template, found))
        last = found.end()
    return "".join([*parts, text[last:]])


def _host_and_port(text: str) -> tuple[str, str] | None:
    """Go's `net.SplitHostPort`; None where it reports an error."""
    found = re.fullmatch(r"(?:\[([^\[\]]*)\]|([^\[\]:]*)):([^\[\]:]*)", text)
    return None if found is None else (found[1] or found[2] or "", found[3])


def _without_port(text: str) -> str:
    found = _host_and_port(text)
    return text if found is None else found[0]


def _without_domain(text: str) -> str:
    host, port = _host_and_port(text) or (text, "")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        host = host.partition(".")[0]
        return f"{f'[{host}]' if ':' in host else host}:{port}" if port else host
    return text


def _label(name: str, sample: Struct) -> str:
    return str(sample.fields["Labels"].get(name, ""))


def _first(vector: list[Struct]) -> Struct:
    if not vector:
        raise ValueError("first() called on vector with no elements")
    return vector[0]


def _titled(text: str) -> str:
    # A word: letters, digits, and what joins them within a word by Unicode's rules (UAX 29).
    return re.sub(r"\w(?:\w|['’.:·](?=\w))*", lambda word: _capital(word[0]), text)


def _capital(word: str) -> str:
    at = next((index for index, each in enumerate(word) if each.isalpha()), 0)
    return word[:at] + word[at : at + 1].title() + word[at + 1 :]


def _seconds(text: str) -> float:
    return -parse_duration(text[1:]) if text.startswith("-") else parse_duration(text)


_TEXT, _ANY, _MANY, _VECTOR = ("string",), ("any",), ("any...",), "template.queryResult"
FUNCTIONS: dict[str, Callee] = {  # those that need no more than their arguments, by name
    "call": Callee(("any", "any..."), _no_call),
    "html": Callee(_MANY, _escaped_html),
    "index": Callee(("any", "any..."), _index),
    "js": Callee(_MANY, _escaped_js),
    "len": Callee(_ANY, _length),
    "not": Callee(_ANY, lambda value: not is_true(value)),
    "print": Callee(_MANY, sprint),
    "printf": Callee(("string", "any..."), sprintf),
    "println": Callee(_MANY, sprintln),
    "slice": Callee(("any", "any..."), _slice),
    "urlquery": Callee(_MANY, _query_escaped),
    "eq": Callee(("any", "any..."), _equal),
    "ne": Callee(("any", "any"), lambda left, right: not _equal(left, right)),
    "lt": Callee(("any", "any"), _less),
    "le": Callee(("any", "any"), _less_or_equal),
    # As in Go, the inverse: it is true of NaN.
    "gt": Callee(("any", "any"), lambda left, right: not _less_or_equal(left, right)),
    "ge": Callee(("any", "any"), lambda left, right: not _less(left, right)),
    **{
        name: Callee(_ANY, lambda value, of=of: of(to_float(value))) for name, of in FILTERS.items()
    },
    "args": Callee(_MANY, lambda *each: AnyMap({f"arg{n}": x for n, x in enumerate(each)})),
    "first": Callee((_VECTOR,), _first),
    "graphLink": Callee(_TEXT, lambda expr: f"/graph?g0.expr={quote_plus(expr)}&g0.tab=0"),
    "label": Callee(("string", SAMPLE), _label),
    "match": Callee(("string", "string"), lambda p, text: _compiled(p).search(text) is not None),
    "parseDuration": Callee(_TEXT, _seconds),
    "reReplaceAll": Callee(("string", "string", "string"), _replaced),
    "safeHtml": Callee(_TEXT, str),
    "sortByLabel": Callee(
        ("string", _VECTOR),
        lambda name, vector: sorted(vector, key=lambda each: _label(name, each)),
    ),
    "stripDomain": Callee(_TEXT, _without_domain),
    "stripPort": Callee(_TEXT, _without_port),
    "strvalue": Callee((SAMPLE,), lambda sample: _label("__value__", sample)),
    "tableLink": Callee(_TEXT, lambda expr: f"/graph?g0.expr={quote_plus(expr)}&g0.tab=1"),
    "title": Callee(_TEXT, _titled),
    "toDuration": Callee(_ANY, lambda value: GoDuration(to_float(value))),
    "toLower": Callee(_TEXT, str.lower),
    "toTime": Callee(_ANY, lambda value: GoTime(to_float(value))),
    "toUpper": Callee(_TEXT, str.upper),
    "urlQueryEscape": Callee(_TEXT, quote_plus),
    "value": Callee((SAMPLE,), lambda sample: sample.fields["Value"]),
}
