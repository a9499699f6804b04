"""An expression's text before it is parsed: its size is bounded, and regexes are taken out.

`promql_parser` is recursive and copies the subtree of each node, and it compiles each regex with a
compiler whose cost has no bound. So neither a large text nor any regex reaches it. Every pattern
here takes time linear in the text.
"""

import re
from collections.abc import Callable

from ldlm_promrules.errors import RuleError
from ldlm_promrules.golang import LITERAL, compile_pattern, unquoted

APART = re.compile(rf"{LITERAL}|[\"'`].*|#[^\r\n]*", re.DOTALL)
"""Literals and comments, whose words are none; a literal that does not end goes to the end."""

MAX_OPERATORS = 500
"""Operators, opening brackets and regexes of an expression at most, of which each may be a level
of nesting or costs the time of compiling it. A choice: of 9,700 public rules and panels (the
compiled mixins, kube-prometheus, its chart, awesome-prometheus-alerts, sloth, pyrra) the largest
has 89, and the deepest 13 levels. A chain of 500 `+` takes the parser 0.16 s and 35 MiB, the
costliest shape tried (750 tokens, mixed) 0.35 s and 53 MiB; of a thread's stack of 8 MiB none takes
more than 1. Ten times as many end the process."""

_OPERATOR = re.compile(
    r"[-+*/%^(\[{]|==|[=!]~|!=|[<>]=?|(?<![\w:.])(?:and|or|unless|atan2)(?![\w:.])", re.IGNORECASE
)
_UNICODE_CLASS = re.compile(r"\\[pP]")  # takes RE2 as long as 100 other characters
_OR_EMPTY = "|"  # makes a regex of digits match an empty text, too
_NUMBER = r"(?<![\w:.])(?:0[xX][\da-fA-F_]+|\d[\d_.]*(?:[eE][-+]?\d+)?)(?!\w)"
_REWRITTEN = re.compile(
    rf"(?P<operator>[=!]~(?:\s|#[^\r\n]*)*+)(?P<regex>{LITERAL})"
    rf"|{APART.pattern}|(?P<number>{_NUMBER})",
    re.DOTALL,
)


def blanked(text: str) -> str:
    """`text` with spaces in place of its string literals and comments; the rest keeps its place."""
    return APART.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def check_size(text: str) -> None:
    """Raise RuleError if there are more than MAX_OPERATORS."""
    counted = len(_OPERATOR.findall(blanked(text))) + len(_UNICODE_CLASS.findall(text))
    if counted > MAX_OPERATORS:
        raise RuleError(
            f"has {counted} operators, brackets and classes of characters; at most {MAX_OPERATORS} "
            "are accepted",
            remedy="split it with a recording rule",
        )


def without_regexes(text: str, ask: Callable[[], None]) -> str:
    """`text` as `promql_parser` takes it: each regex is a literal that `regex_of` decodes.

    The literal matches an empty text if its regex does, which is all that the parser asks of one.
    Numbers, which Prometheus 3 also takes as `1_000`, lose their underscores. `ask` is called
    before each regex is compiled. Raises RuleError for a regex that RE2 refuses.
    """

    def rewritten(found: re.Match[str]) -> str:
        if (literal := found["regex"]) is not None:
            try:
                regex = unquoted(literal)
            except ValueError as problem:
                raise RuleError(f"bad syntax: {problem}") from None
            ask()
            is_empty = compile_pattern(regex).fullmatch("") is not None
            encoded = regex.encode("utf-8", "surrogatepass").hex()
            return f'{found["operator"]}"{encoded}{_OR_EMPTY if is_empty else ""}"'
        if (number := found["number"]) is not None:
            return re.sub(r"(?<=\d)_(?=\d)", "", number)
        return found[0]

    return _REWRITTEN.sub(rewritten, text)


def regex_of(literal: str) -> str:
    """The regex for which `without_regexes` wrote a literal."""
    return bytes.fromhex(literal.removesuffix(_OR_EMPTY)).decode("utf-8", "surrogatepass")
