r"""Log text made harmless for terminals, messages and pages: bounded, visible, without secrets.

Every pattern runs on RE2, whose time is linear in the text for any input. If a word looks like a
secret, it is hidden too: a hidden word costs a look at the log, a posted secret costs the account.

The forms below are those of the services that issue the keys, and of detect-secrets 1.5
(docs/security.md says what it lacks). The least lengths of keys are a choice: no longer than
issued keys, so that most cut keys are hidden too, and longer than usual words.
"""

import json
import math
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any
from urllib.parse import quote

import re2

ELLIPSIS = "…"  # stands where a text was cut; it takes one column

_LONGEST = 8192
"""Characters of a text that `plain` reads: a choice, 20 times those shown; bounds its time."""

# Forms of ECMA-48: control sequences, operating system commands, two-character escapes.
_ESCAPE_SEQUENCE = re2.compile(
    r"(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[ -/]*[0-~]"
)
_LINE_END = re2.compile(r"\r\n?|[\x0b\x0c\x{85}\x{2028}\x{2029}]")  # Unicode's line ends without \n
# Characters that show nothing or turn the direction of writing: with them, text can be hidden.
_UNSEEN = re2.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x{9f}\x{ad}\x{61c}\x{180e}"  # controls, marks without width
    r"\x{200b}-\x{200f}\x{2028}-\x{202e}\x{2060}-\x{206f}\x{feff}"  # zero width, direction
    r"\x{fff9}-\x{fffb}\x{e0000}-\x{e007f}]"
)
# Unicode's categories of controls, formats, characters without a meaning, and line separators.
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))

REDACTED = "[redacted]"  # stands where a secret was

# Names of secrets. `token` and `pass` alone are not: `pad_token=<pad>`, `tokens: 1024`, `pass=2`.
_NAME = (
    r"[A-Za-z0-9_.-]*(?:pass(?:word|phrase)|[A-Za-z0-9_.-]passwd|contrase(?:n|\x{f1})a|[_-]pwd|secret|credentials?"
    r"|sentry_dsn|(?:api|db|database|key|sl|cloudant)[_-]?(?:pass|pwd|pw)"
    r"|(?:api|access|secret|private|priv|signing|encryption|account|licen[cs]e|auth|service|db"
    r"|database|client)[_-]?key(?:[_-]?id)?"
    r"|(?:access|api|app|auth|bearer|bot|client|cloudant|csrf|gh|github|gitlab|hf|hub|id|jwt"
    r"|refresh|secret|security|session|sl|slack|softlayer|telegram|user|wandb)[_-]?token)"
)
# A name and its sign of assignment (`=`, `:`, `=>`, `--flag value`), or a variable such as X_KEY=.
_ASSIGNED = (
    # `passwd` alone is no name within a path: `/etc/passwd: Permission denied`.
    r"(?:(?i:(?:" + _NAME + r"|(?:^|[^/A-Za-z0-9_.-])passwd)\\?[\"']?\]?\s*(?:::|:=|=>|=|:)\s*"
    r"|--?(?:" + _NAME + r"|passwd)\s+)"
    r"|\b[A-Z][A-Z0-9_]*_(?:TOKEN|KEY|SECRET|PASS)=)"
)
# Keys and tokens that a prefix or form of their issuer identifies.
_PREFIXED = (
    r"sk-(?:ant|admin|lf|or|proj|svcacct)-[A-Za-z0-9_-]{12,}|sk-[A-Za-z0-9]{16,}"
    r"|sk-[A-Za-z0-9_-]+T3BlbkFJ[A-Za-z0-9_-]+"
    r"|[prs]k_(?:live|test)_[A-Za-z0-9]{12,}|gsk_[A-Za-z0-9]{20,}|nvapi-[A-Za-z0-9_-]{20,}"
    r"|hf_[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{16,}|wandb_v[0-9]_[A-Za-z0-9_-]{20,}"
    r"|local-[0-9a-f]{40}|r8_[A-Za-z0-9]{30,}|pplx-[A-Za-z0-9]{30,}|xai-[A-Za-z0-9]{40,}"
    r"|rpa_[A-Z0-9]{30,}|lsv2_[a-z]{2}_[A-Za-z0-9_]{30,}|tvly-[A-Za-z0-9-]{20,}"
    r"|pcsk_[A-Za-z0-9_]{20,}|KGAT_[0-9a-f]{32}"
    r"|gh[oprsu]_[A-Za-z0-9_]{16,}|github_pat_[A-Za-z0-9_]{20,}"
    r"|gl(?:agent|cbt|dt|ffct|ft|imt|oas|pat|ptt|rt|soat|wt)-[A-Za-z0-9_-]{16,}"
    r"|GR1348941[A-Za-z0-9_-]{16,}"
    r"|(?i:xox[a-z])(?:\.xox[a-z])?-[A-Za-z0-9-]{8,}|(?i:xox[a-z])-(?:[0-9]+-)+[A-Za-z0-9]+"
    r"|xapp-[A-Za-z0-9-]{8,}"
    r"|(?:A3T[A-Z0-9]|A(?:BIA|CCA|GPA|IDA|IPA|KIA|NPA|NVA|ROA|SIA))[A-Z0-9]{16}"
    r"|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{16,}|GOCSPX-[A-Za-z0-9_-]{20,}"
    r"|1//0[A-Za-z0-9_-]{30,}|dapi[0-9a-f]{32}|npm_[A-Za-z0-9]{30,}"
    r"|pypi-[A-Za-z0-9_-]{40,}|dckr_pat_[A-Za-z0-9_-]{20,}|do[opr]_v1_[0-9a-f]{40,}"
    r"|rubygems_[0-9a-f]{40,}|gl(?:sa|c)_[A-Za-z0-9_=+/-]{30,}|hv[bs]\.[A-Za-z0-9_-]{20,}"
    r"|sntry[su]_[A-Za-z0-9_=+/-]{30,}|NRAK-[A-Z0-9]{20,}|AT[AC]TT3[A-Za-z0-9_=-]{30,}"
    r"|lin_api_[A-Za-z0-9]{30,}|ntn_[A-Za-z0-9]{30,}|shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}"
    r"|pul-[0-9a-f]{40}|whsec_[A-Za-z0-9+/=]{20,}|AGE-SECRET-KEY-1[0-9A-Z]{50,}"
    r"|sq0[a-z]{3}-[A-Za-z0-9_\\-]{22,}|AKC[A-Za-z0-9]{10,}|AP[0-9A-F][A-Za-z0-9]{22,}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|[0-9]{8,10}:[A-Za-z0-9_-]{35}"
    r"|[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}"
    r"|eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,4}"  # JWT, JWE
    r"|(?:(?:AC|SK)[a-z0-9]{32}|key-[0-9a-f]{32}|[0-9a-z]{32}-us[0-9]{1,2})\b"
)
# Blocks of PEM and PuTTY keys; a block without its last line goes to the text's end.
_PRIVATE_KEY = (
    r"(?s)()(?:(?:-+ *)?BEGIN [A-Z0-9 ]*PRIVATE KEY"
    r".*?(?:END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*(?: *-+)?|\z)"
    r"|PuTTY-User-Key-File-[0-9].*?(?:Private-MAC: *[0-9a-f]*|\z))"
)
# Parameters of URLs that grant access; `x-amz-` and `x-goog-` sign the URLs of S3 and GCS.
_QUERY = (
    r"(?i)([?&;](?:sig|signature|token|code|(?:access|api|auth|id)_?(?:token|key)|key|secret"
    r"|password|x-(?:amz|goog)-[a-z-]+)=)[^&\s\"'<>#]+"
)
# Names that detect-secrets expects before keys of IBM Cloud, Cloudant and SoftLayer.
_VENDOR = (
    r"(?i)((?:\b|[_-])(?:(?:api|cloudant|cloud|clou|cl|cos|iam|ibm(?:[_-]?cos)?|secret|softlayer|sl)"
    r"(?:[_-]{0,2}(?:access|api|cloud|hmac|iam|secret)){0,3}[_-]{0,2}"
    r"(?:key|password|pass|pwd|pw|token)|pass|pwd)"
    r"[\"']?\]?\s*(?:::|:=|=>|=|:|\s)\s*[\"']?)"
)
_TO_SPACE = r"[^\s\"'<>]+"  # the rest of a URL

_RULES = (
    _PRIVATE_KEY,
    r"(?i)(://)[^\s/:@]*:[^\s/]*@",  # user and password of a URL
    r"(?i)([a-z][a-z0-9+.-]*://)[A-Za-z0-9_-]{20,}@",  # a token as a URL's user
    r"(?i)(https?://hooks\.[^\s/\"'<>]+/)" + _TO_SPACE,
    r"(?i)(https?://[^\s\"'<>]+/(?:web)?hooks?[a-z0-9]{0,2}/)" + _TO_SPACE,
    # URLs of dead man's switches: who has one can keep the switch quiet.
    r"(?i)(https?://(?:hc-ping\.com|cronitor\.link|nosnch\.in)/)" + _TO_SPACE,
    r"(?i)(api\.telegram\.org/bot)[^\s/\"'<>]+",
    r"(?i)(https?://api.softlayer.com/soap/v3(?:.1)?/)[a-z0-9]+",
    _QUERY,
    r"(?i)(authorization\\?[\"']?\s*[:=]\s*\\?[\"']?)(?:[a-z0-9-]+[ \t]+)?[^\s\"'\\]+",
    r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{6,}",
    r"(?i)(\bcookie:\s*)[^\n]+",
    r"(?i)(wandb[ .]login\b[^A-Za-z0-9\n]+(?:\S+\s+)*?(?:key=[\"']?)?)[A-Za-z0-9_-]{20,}",
    r"(?i)(\btoken\\?[\"']?\]?\s*(?:::|:=|=>|=|:)\s*\\?[\"']?)[A-Za-z0-9._~+/=-]{16,}",
    r"(?i)(aws.{0,20}?(?:key|pwd|pw|password|pass|token).{0,20}?['\"])[0-9a-z/+]{40}",
    _VENDOR + r"[a-z0-9_-]{24,}",
    r"(" + _ASSIGNED + r"\\[\"'])[^\"'\\\n]+",
    r"(" + _ASSIGNED + r"\")(?:[^\"\\\n]|\\.)+",
    r"(" + _ASSIGNED + r"')(?:[^'\\\n]|\\.)+",
    r"(" + _ASSIGNED + r")[^\s\"'\\]\S*",
    r"(\b|_)(?:" + _PREFIXED + r")",
)
"""Rules in order of use; group 1 of a match is kept, and a final `@`. Rules for structured forms
(URLs, headers, assignments) are first; the last matches keys by their prefix alone."""

_KEY_LINE = r"(?m)(^|\s)(?:[A-Za-z0-9+/]{64}|[A-Za-z0-9+/]{70}|[A-Za-z0-9+/]{76})\s*$"
"""A whole line of a private key's body: PEM has 64 characters, OpenSSH 70, MIME 76."""

_SCAN_MEMORY = 64 * 1024 * 1024
"""Bytes for RE2's automaton: a choice, 8 times the default; with too few it matches no rule."""


# Both at the first use: they take a twentieth of a short command's time.
@cache
def _scan() -> Any:
    """A set that finds in one search which rules match a text."""
    options = re2.Options()
    options.max_mem = _SCAN_MEMORY
    scan = re2.Set.SearchSet(options)
    for pattern in (*_RULES, _KEY_LINE):
        scan.Add(pattern)
    scan.Compile()
    return scan


_compiled = cache(re2.compile)


def redact(text: str) -> str:
    """`text` with keys, tokens and passwords replaced by `[redacted]`.

    Lone surrogates become U+FFFD. Only known forms are recognised, and values whose name
    says that they are secret; not a secret that looks like a word, a hash or a UUID.
    """
    kept = encodable(text)
    for number in sorted(_scan().Match(kept) or ()):
        if number < len(_RULES):
            end = "@" if _RULES[number].endswith("@") else ""
            kept = _compiled(_RULES[number]).sub(rf"\1{REDACTED}{end}", kept)
        else:
            kept = _compiled(_KEY_LINE).sub(_without_key, kept)
    return str(kept)


def _without_key(found: Any) -> str:
    """The line redacted, or unchanged if its letters are of one case, as in hexadecimal digests."""
    line = found.group(0)
    is_key = all(any(map(kind, line)) for kind in (str.isupper, str.islower, str.isdigit))
    return f"{found.group(1)}{REDACTED}" if is_key else line


def without_escapes(text: str) -> str:
    r"""`text` without escape sequences, control characters and invisible characters.

    Characters without width, and those that turn the direction of writing, count as invisible.
    Every line end becomes `\n`, tabs stay, lone surrogates become U+FFFD.
    """
    shown = _LINE_END.sub("\n", _ESCAPE_SEQUENCE.sub("", encodable(text)))
    return str(_UNSEEN.sub("", shown))


def sanitized(text: str) -> str:
    """`text` without escape sequences and secrets; line ends are kept.

    It is redacted before and after: removing an escape sequence may remove the first letter
    of a secret's name, or join a secret that the sequence splits.
    """
    return redact(without_escapes(redact(text)))


def plain(text: str, limit: int = 400) -> str:
    """`text` sanitised, as one line of at most `limit` characters (five rows of a terminal)."""
    text = sanitized(text[:_LONGEST])
    kept = "".join(" " if unicodedata.category(each) in _HIDDEN else each for each in text)
    return shorten(" ".join(kept.split()), limit)


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

    Non-finite numbers become the strings "NaN", "Infinity" and "-Infinity".
    """
    match value:
        case str():
            return redact(encodable(value))
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {jsonable(key, redact): jsonable(item, redact) for key, item in value.items()}
        case list() | tuple():
            return [jsonable(item, redact) for item in value]
        case _:
            return value
