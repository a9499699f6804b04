"""Log text made harmless for terminals, messages and pages: bounded, visible, without secrets.

The patterns here go on from where they failed: no class holds what begins a sequence.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote

from ldlm_monitor.base.text.secrets import REDACTED, hidden, is_secret_name

ELLIPSIS = "…"  # stands where a text was cut; it takes one column

_PROGRAM_WORDS = 6
"""A program and its subcommand are among so many first words, also behind `env`, `sudo` and others:
a choice."""
_NO_WORD = re.compile(r"[^A-Za-z0-9._~+/=:@%,-]")
"""What would end a word of a line, or begin a quoted one."""
_UNKNOWN_VALUE = "unknown"  # stands for a word of several, of which an option alone decides

_LONGEST = 8192
"""Characters of a text that `plain` reads: a choice, 20 times those shown; bounds its time."""

# Forms of ECMA-48: control sequences, operating system commands, two-character escapes.
_ESCAPE_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[ -/]*[0-~]"
)
_LINE_END = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")  # Unicode's line ends without \n
# Characters that show nothing or turn the direction of writing: with them, text can be hidden.
_UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\xad\u061c\u180e"  # controls, marks without width
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"  # zero width, direction
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def redact(text: str) -> str:
    """`text` as it is shown, with keys, tokens and passwords replaced by `[redacted]`.

    Escape sequences and invisible characters, which could split or hide a secret's name, are gone,
    as by `without_escapes`. Only known forms are recognised, and values whose name says that they
    are secret; not a secret that looks like a word, a hash or a UUID.
    """
    shown = hidden(without_escapes(text))
    if "\x1b" not in text and "\x9b" not in text:
        return shown
    # A torn escape sequence may have taken the first letter of a secret's name along.
    whole = hidden(_seen(encodable(text)))
    return whole if whole.count(REDACTED) > shown.count(REDACTED) else shown


def redacted_arguments(words: Sequence[str]) -> tuple[str, ...]:
    """A command's words, redacted: also the value of an option in the word before it."""
    return tuple(_argument(words, number) for number in range(len(words)))


def _argument(words: Sequence[str], number: int) -> str:
    word = words[number]
    before = words[: min(number, _PROGRAM_WORDS)]
    if number > _PROGRAM_WORDS:
        before = (*before, words[number - 1])
    line = " ".join(_NO_WORD.sub("x", each) for each in before)
    is_one = not _NO_WORD.search(word)
    shown = hidden(f"{line} {word if is_one else _UNKNOWN_VALUE}")
    if shown.endswith(word if is_one else _UNKNOWN_VALUE):
        return redact(word)
    return shown.rpartition(" ")[2]


def without_escapes(text: str) -> str:
    r"""`text` without escape sequences, control characters and invisible characters.

    Characters without width, and those that turn the direction of writing, count as invisible.
    Every line end becomes `\n`, tabs stay, lone surrogates become U+FFFD.
    """
    return text if _is_clean(text) else _seen(_ESCAPE_SEQUENCE.sub("", encodable(text)))


def _is_clean(text: str) -> bool:
    """Whether ASCII has lines and tabs alone to control it, as most texts have."""
    return text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()


def _seen(text: str) -> str:
    return _UNSEEN.sub("", _LINE_END.sub("\n", text))


def plain(text: str, limit: int = 400) -> str:
    """`text` redacted, as one line of at most `limit` characters (five rows of a terminal)."""
    text = redact(text[:_LONGEST])
    if not text.isascii() and not text.isprintable():
        text = "".join(each if each.isprintable() else " " for each in text)
    return shorten(" ".join(text.split()), limit)


def encodable(text: str) -> str:
    """`text` with lone surrogates, which UTF-8 cannot encode, replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def escaped_json(document: bytes) -> bytes:
    r"""JSON in UTF-8 with controls and invisible characters as `\u` escapes: equal as JSON.

    A terminal obeys C1 controls, and shows text with characters of direction in another order.
    """
    if document.isascii():  # as most records are; JSON escapes the controls of ASCII itself
        return document
    return visible(document.decode()).encode()


def visible(text: str) -> str:
    r"""`text` with controls and invisible characters as `\u` escapes; line ends and tabs stay."""
    return str(_UNSEEN.sub(lambda found: json.dumps(found.group(0))[1:-1], text))


def run_path(run: str) -> str:
    """The path of a run's page at the monitor: `/runs/` and the name without secrets."""
    return f"/runs/{quote(plain(run), safe='')}"


def summary_of(annotations: Mapping[str, str], run: str) -> str:
    """An alert's summary without its leading run name: the places that use it show the run."""
    summary = plain(annotations.get("summary", ""))
    rest = summary.removeprefix(plain(run))
    return rest.lstrip(": ") if rest[:1] in (":", " ") else summary


def shorten(text: str, limit: int) -> str:
    """`text` cut to `limit` characters, the last an ellipsis if it was longer."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + ELLIPSIS


def shorten_path(path: str, limit: int) -> str:
    """`path` cut to `limit` characters at its beginning, as its end has the file's name."""
    return path if len(path) <= limit else ELLIPSIS + path[len(path) - limit + 1 :]


def jsonable(value: object, redact: Callable[[str], str] = redact) -> object:
    """`value` as types that JSON has, every string passed through `redact`.

    A string under a key that is the name of a secret is hidden, whatever it is.

    Non-finite numbers become the strings "NaN", "Infinity" and "-Infinity".
    """
    match value:
        case str():
            return redact(encodable(value))
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {
                jsonable(key, redact): REDACTED
                if isinstance(item, str) and is_secret_name(str(key))
                else jsonable(item, redact)
                for key, item in value.items()
            }
        case list() | tuple():
            return [jsonable(item, redact) for item in value]
        case _:
            return value
