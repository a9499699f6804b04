"""The notation of Prometheus' tests for series and values: `up{job="a"}` and `1+2x3 _ stale`.

The grammar is that of `ParseSeriesDesc` (`promql/parser/generated_parser.y`).
"""

import re
from collections.abc import Iterator

from ldlm_promrules.golang import LITERAL, unquoted
from ldlm_promrules.samples import Labels

STALE = object()  # `parse_values` yields it for `stale`: the series ends here
HISTOGRAM = object()  # yielded for a native histogram, which the evaluator does not support

# Tokens, as in Prometheus' lexer (`promql/parser/lex.go`); `_LABELS` is what braces enclose.
_NAME = re.compile(r"[a-zA-Z_:][\w:]*")
_LABELS = re.compile(rf"\s*\{{((?:[^{{}}\"'`]|{LITERAL})*)\}}")
_LABEL = re.compile(rf"\s*([\w.]+|{LITERAL})\s*(?:=\s*({LITERAL}))?\s*(?:,|$)")
_NUMBER = r"(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|(?:[iI]nf|[nN]a[nN])(?!x))"
"""A number, but not the `Inf` of `Infx3`: the lexer reads that as one token, an invalid number."""
# Values between blanks: histograms, `stale`, missing values (`_`), or numbers, each with a count.
_POINT = re.compile(
    rf"(?P<histogram>\{{\{{.*?\}}\}}(?:[+-]\{{\{{.*?\}}\}})?)(?:x(?P<histograms>\d+))?(?:\s+|$)"
    rf"|(?P<stale>stale)(?:\s+|$)"
    rf"|_(?:x(?P<omitted>\d+))?(?:\s+|$)"
    rf"|(?P<first>[+-]?{_NUMBER})(?P<step>[+-]{_NUMBER})?(?:x(?P<times>\d+))?(?:\s+|$)"
)


def parse_series(text: str) -> tuple[Labels, str]:
    """Labels (with `__name__`) that begin `text`, and the rest. Raises ValueError otherwise."""
    pairs: dict[str, str] = {}
    position = 0
    if (name := _NAME.match(text)) is not None:
        pairs["__name__"] = name[0]
        position = name.end()
    if (braces := _LABELS.match(text, position)) is not None:
        pairs |= _pairs(braces[1])
        position = braces.end()
    if not position:
        raise ValueError(f'{text!r} is no series such as up{{job="a"}}')
    labels = tuple(sorted((label, value) for label, value in pairs.items() if value))
    return labels, text[position:].strip()


def _pairs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    position = 0
    while position < len(text.rstrip()):
        label = _LABEL.match(text, position)
        if label is None:
            raise ValueError(f'{text!r} are no labels such as job="a"')
        name = unquoted(label[1]) if label[1][0] in "\"'`" else label[1]
        if label[2] is None:
            found["__name__"] = name
        else:
            found[name] = unquoted(label[2])
        position = label.end()
    return found


def parse_values(text: str) -> Iterator[object]:
    """The values of a series in order: numbers, STALE, HISTOGRAM, or None for a missing value.

    Raises ValueError where the text is not in this notation.
    """
    position = 0
    while position < len(text):
        found = _POINT.match(text, position)
        if found is None:
            raise ValueError(f"{text[position:]!r} are no values such as 1 2+3x4 _ stale")
        position = found.end()
        if found["histogram"]:
            yield from [HISTOGRAM] * (int(found["histograms"] or 0) + 1)
        elif found["stale"]:
            yield STALE
        elif found["first"]:
            first, step = float(found["first"]), float(found["step"] or 0)
            value = first
            for _ in range(int(found["times"] or 0) + 1):
                yield value
                value = value + step if step else first
        else:
            yield from [None] * int(found["omitted"] or 1)
