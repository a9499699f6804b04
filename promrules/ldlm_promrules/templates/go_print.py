"""Go's `fmt`: what its `%v`, `Sprint` and `Sprintf` make of the values of templates.

Go's types are here: string `str`, int `int`, float64 `float`, bool `bool`, nil `None`, a map `dict`
or `AnyMap`, a result of `query` a list of `Struct`, and `GoTime` and `GoDuration`. Where Go prints
a pointer's address, this prints what it points to. Source: `fmt/print.go`, `fmt/format.go`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ldlm_promrules.golang import go_float, quoted
from ldlm_promrules.templates.go_time import GoDuration, GoTime

MAX_TEXT = 1 << 16  # characters of a text that a template may make. A choice: no message is longer
_VERB = re.compile(
    r"%(?P<flags>[-+# 0]*)(?:\[(?P<wide>\d+)\])?(?P<width>\*|\d+)?"
    r"(?:\.(?:\[(?P<exact>\d+)\])?(?P<precision>\*|\d*))?(?:\[(?P<index>\d+)\])?(?P<verb>.|$)",
    re.DOTALL,
)
_NAMES = (  # Python's type, Go's name of it; a bool is an int in Python
    (bool, "bool"), (int, "int"), (float, "float64"), (str, "string"), (type(None), "<nil>"),
    (GoTime, "*time.Time"), (GoDuration, "*time.Duration"), (list, "template.queryResult"),
)  # fmt: skip


class AnyMap(dict[str, Any]):
    """Go's map[string]any, which `args` makes."""


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct of Go: the name of its type (with `*`: a pointer), and its fields in order."""

    type: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Spec:
    flags: str
    width: int
    precision: int | None
    verb: str

    def padded(self, text: str, *, number: bool = False) -> str:
        if "-" in self.flags:
            return text.ljust(self.width)
        return text.zfill(self.width) if number and "0" in self.flags else text.rjust(self.width)


def type_name(value: Any) -> str:
    """Go's name of a value's type."""
    if isinstance(value, Struct):
        return value.type
    if isinstance(value, dict):
        return f"map[string]{'interface {}' if isinstance(value, AnyMap) else 'string'}"
    return next(name for kind, name in _NAMES if isinstance(value, kind))


def shown(value: Any) -> str:
    """Go's `%v`."""
    return _formatted(_Spec("", 0, None, "v"), value)


def sprint(*values: Any) -> str:
    """Go's `Sprint`: a space between two values neither of which is a text."""
    text, before = "", ""
    for value in values:
        if text and not isinstance(value, str) and not isinstance(before, str):
            text += " "
        text, before = text + _pointed(value), value
    return text


def sprintln(*values: Any) -> str:
    """Go's `Sprintln`."""
    return " ".join(map(_pointed, values)) + "\n"


def sprintf(form: str, *values: Any) -> str:
    """Go's `Sprintf`. Raises ValueError for more than `MAX_TEXT` characters."""
    given = _Arguments(values)
    text = _VERB.sub(given.formatted, form)
    rest = values[given.next :]
    if not rest or given.reordered:
        return text
    extra = ", ".join(
        "<nil>" if value is None else f"{type_name(value)}={_pointed(value)}" for value in rest
    )
    return f"{text}%!(EXTRA {extra})"


def _pointed(value: Any) -> str:
    """`%v` where a pointer to a struct shows its `&`."""
    text = shown(value)
    return f"&{text}" if isinstance(value, Struct) and value.type[0] == "*" else text


class _Arguments:
    """The values of one `Sprintf`; `next` is the index of the next one."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = values
        self.next = 0
        self.reordered = False
        self._length = 0

    def _star(self, index: str | None, text: str | None) -> int | None:
        self._move(index)
        if text != "*":
            return int(text) if text else None
        self.next += 1
        found = self._values[self.next - 1] if self.next <= len(self._values) else None
        return found if isinstance(found, int) else None

    def _move(self, index: str | None) -> None:
        if index is not None:
            self.next, self.reordered = int(index) - 1, True

    def formatted(self, found: re.Match[str]) -> str:
        """The text in the place of one verb. Raises ValueError beyond `MAX_TEXT` altogether."""
        text = self._shown(found)
        self._length += len(text)
        if self._length > MAX_TEXT:
            raise ValueError(f"printf: more than {MAX_TEXT} characters")
        return text

    def _shown(self, found: re.Match[str]) -> str:
        flags, verb = found["flags"], found["verb"]
        width = self._star(found["wide"], found["width"]) or 0
        precision = self._star(found["exact"], found["precision"])
        if precision is None and found["precision"] is not None:
            precision = 0
        self._move(found["index"])
        if not verb:
            return "%!(NOVERB)"
        if verb == "%":
            return "%"
        if not 0 <= self.next < len(self._values):
            return f"%!{verb}({'BADINDEX' if self.reordered else 'MISSING'})"
        value = self._values[self.next]
        self.next += 1
        if width < 0:
            flags, width = flags + "-", -width
        text = _formatted(_Spec(flags, width, precision, verb), value)
        is_pointer = isinstance(value, Struct) and value.type[0] == "*" and verb != "T"
        return f"&{text}" if is_pointer else text


def _formatted(spec: _Spec, value: Any) -> str:
    if max(spec.width, spec.precision or 0) > MAX_TEXT:
        raise ValueError(f"printf: a width beyond {MAX_TEXT}")
    if spec.verb == "T":
        return spec.padded(type_name(value))
    if isinstance(value, GoTime | GoDuration) and spec.verb in "vsxXq":
        value = str(value)
    match value:
        case None:
            return spec.padded("<nil>") if spec.verb == "v" else f"%!{spec.verb}(<nil>)"
        case dict():
            pairs = sorted(value.items())
            return (
                f"map[{' '.join(f'{_formatted(spec, k)}:{_formatted(spec, v)}' for k, v in pairs)}]"
            )
        case list():
            return f"[{' '.join(_formatted(spec, each) for each in value)}]"
        case Struct(fields=fields):
            names = "+" in spec.flags and spec.verb == "v"
            each = (f"{n}:" * names + _formatted(spec, v) for n, v in fields.items())
            return f"{{{' '.join(each)}}}"
        case bool():
            text = spec.padded(str(value).lower()) if spec.verb in "tv" else None
        case str():
            text = _text(spec, value)
        case int():
            text = _integer(spec, value)
        case _:
            text = _float(spec, value) if isinstance(value, float) else None
    return f"%!{spec.verb}({type_name(value)}={shown(value)})" if text is None else text


def _text(spec: _Spec, value: str) -> str | None:
    if spec.precision is not None:
        value = value[: spec.precision]
    if spec.verb in ("x", "X"):
        value = value.encode("utf-8", "replace").hex(*" " * (" " in spec.flags))
        value = value.upper() if spec.verb == "X" else value
    elif spec.verb == "q" or (spec.verb == "v" and "#" in spec.flags):
        value = quoted(value)
    elif spec.verb not in "sv":
        return None
    return spec.padded(value)


def _integer(spec: _Spec, value: int) -> str | None:
    verb = {"v": "d"}.get(spec.verb, spec.verb)
    if verb in ("c", "q", "U"):
        code = value if 0 <= value <= 0x10FFFF else 0xFFFD
        text = {"c": chr(code), "q": f"'{chr(code)}'", "U": f"U+{value:04X}"}[verb]
        return spec.padded(text)
    if verb not in "dboxXO":
        return None
    digits = format(abs(value), verb.replace("O", "o")).zfill(spec.precision or 0)
    prefix = {"b": "0b", "o": "0", "x": "0x", "X": "0X"}.get(verb, "") * ("#" in spec.flags)
    prefix = "0o" if verb == "O" else prefix
    sign = "-" if value < 0 else _plus(spec)
    return spec.padded(sign + prefix + digits, number=spec.precision is None)


def _plus(spec: _Spec) -> str:
    """The sign of a number that is not negative; `+` with `%v` shows a struct's names instead."""
    if "+" in spec.flags and spec.verb != "v":
        return "+"
    return " " if " " in spec.flags else ""


def _float(spec: _Spec, value: float) -> str | None:
    verb = {"v": "g", "F": "f"}.get(spec.verb, spec.verb)
    if verb not in "eEfgG":
        return None
    finite = value - value == 0
    if finite and not (spec.precision is None and verb in "gG"):
        text = f"%.{6 if spec.precision is None else spec.precision}{verb}" % value
    else:
        text = go_float(value).upper() if verb == "G" and finite else go_float(value)
    if text[0] not in "+-":
        text = _plus(spec) + text
    elif text == "+Inf" and " " in spec.flags and "+" not in spec.flags:
        text = " Inf"
    return spec.padded(text, number=finite)
