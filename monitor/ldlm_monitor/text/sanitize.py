r"""Log text made harmless for terminals, messages and pages: bounded, visible, without secrets."""

import unicodedata

import re2

from ldlm_monitor.text.redact import redact

ELLIPSIS = "…"

_LONGEST = 8192
"""Characters of a text that are read: longer lines are dumps, of which a limit shows the start."""

_ESCAPE_SEQUENCE = re2.compile(
    r"(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[ -/]*[0-~]"
)
_LINE_END = re2.compile(r"\r\n?|[\x0b\x0c\x{85}\x{2028}\x{2029}]")
_UNSEEN = re2.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x{9f}\x{ad}\x{61c}\x{180e}"  # controls, marks without width
    r"\x{200b}-\x{200f}\x{202a}-\x{202e}\x{2060}-\x{206f}\x{feff}"  # zero width, direction
    r"\x{fff9}-\x{fffb}\x{e0000}-\x{e007f}]"
)


def without_escapes(text: str) -> str:
    r"""`text` as a terminal shows it.

    Escape sequences, control characters and characters that have no width or turn
    the direction of writing are removed; every line end becomes `\n`, tabs stay,
    lone surrogates become U+FFFD.
    """
    shown = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    shown = _ESCAPE_SEQUENCE.sub("", shown)
    shown = _LINE_END.sub("\n", shown)
    return str(_UNSEEN.sub("", shown))


def sanitized(text: str) -> str:
    """`text` without escape sequences and secrets; its lines stay.

    Redacted before and after: a sequence may end in the first letter of a secret's name, or
    split it.
    """
    return redact(without_escapes(redact(text)))


def plain(text: str, limit: int = 400) -> str:
    """One line of at most `limit` characters: no escapes, controls, direction marks, secrets."""
    text = sanitized(text[:_LONGEST])
    kept = "".join(" " if _is_hidden(character) else character for character in text)
    return shorten(" ".join(kept.split()), limit)


def encodable(text: str) -> str:
    """`text` with what UTF-8 cannot encode (lone surrogates) replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def without_run(summary: str, run: str) -> str:
    """The summary without its leading run name, for places that show the run beside it."""
    rest = summary.removeprefix(plain(run))
    return rest.lstrip(": ") if rest[:1] in (":", " ") else summary


def shorten(text: str, limit: int) -> str:
    """`text`, its end replaced by an ellipsis where it is longer than `limit`."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + ELLIPSIS


def shorten_path(path: str, limit: int) -> str:
    """`path`, its beginning replaced by an ellipsis: the end holds the file's name."""
    return path if len(path) <= limit else ELLIPSIS + path[len(path) - limit + 1 :]
