"""The forms of `secret_forms.txt` with secrets made up, and split into an open and a closed half.

The list was written before the redactor's rules; the closed half was not run until they stood.
"""

import random
import re
import string
from dataclasses import dataclass
from pathlib import Path

_ALNUM = string.ascii_letters + string.digits
_CHARACTERS = {
    "an": _ALNUM,
    "hex": "0123456789abcdef",
    "b64": _ALNUM + "+/",
    "url": _ALNUM + "-_",
    "up": string.ascii_uppercase + string.digits,
    "low": string.ascii_lowercase,
    "dig": string.digits,
}
_PLACE = re.compile(r"<<(TAB|AKIA|[a-z]+(?:64_)?)(\d*)>>")
_ESCAPE = re.compile(r"\\u([0-9a-f]{4})|\\x1b")
WINDOW = 12
"""Characters in a row that tell what a longer secret is."""


@dataclass(frozen=True)
class Form:
    """A line that holds secrets."""

    kind: str
    template: str
    line: str
    secrets: tuple[str, ...]

    def shown_in(self, text: str) -> bool:
        """Whether `text` tells a secret, or twelve characters of one."""
        return any(
            secret[at : at + WINDOW] in text
            for secret in self.secrets
            for at in range(max(1, len(secret) - WINDOW + 1))
        )


def _form(kind: str, template: str, draw: random.Random) -> Form:
    secrets = []

    def made(place: re.Match[str]) -> str:
        what, length = place.group(1).rstrip("_"), int(place.group(2) or 0)
        if what == "TAB":
            return "\t"
        if what == "AKIA":
            secrets.append("AKIA" + "".join(draw.choices(_CHARACTERS["up"], k=16)))
            return secrets[-1]
        what = re.sub(r"64_?$", "64", what)
        text = "".join(draw.choices(_CHARACTERS[what], k=length))
        if what != "dig":
            secrets.append(text)
        return text

    # In lists of arguments and printed values `\n` is two characters, as in the template.
    invisible = kind in ("invisible character",) or "\\u00a0" in template
    text = template.replace("␤", "\n")
    if invisible:
        text = _ESCAPE.sub(lambda e: chr(int(e.group(1), 16)) if e.group(1) else "\x1b", text)
    return Form(kind, template, _PLACE.sub(made, text), tuple(secrets))


def _read() -> list[Form]:
    draw, kind, forms = random.Random(38), "", []
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            kind = line[3:]
        elif line and not line.startswith("# "):
            forms.append(_form(kind, line, draw))
    return forms


def halves() -> tuple[list[Form], list[Form]]:
    """The open and the closed half, by a seeded shuffle."""
    forms = _read()
    random.Random(380).shuffle(forms)
    return forms[: len(forms) // 2], forms[len(forms) // 2 :]


OPEN, CLOSED = halves()
