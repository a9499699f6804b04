r"""Makes log text fit to leave the machine: nothing unseen in it, and no secret.

Every pattern runs on RE2, so the time is linear in the text whatever it holds.
Where a secret and a word look alike, the word is hidden too: a hidden word costs
a look at the log, a posted secret costs the account.
"""

import re2

REDACTED = "[redacted]"

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


def plain(text: str) -> str:
    r"""`text` as a terminal shows it.

    Escape sequences, control characters and characters that have no width or turn
    the direction of writing are removed; every line end becomes `\n`, tabs stay,
    lone surrogates become U+FFFD.
    """
    shown = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    shown = _ESCAPE_SEQUENCE.sub("", shown)
    shown = _LINE_END.sub("\n", shown)
    return str(_UNSEEN.sub("", shown))


# `token` alone does not tell a secret: `pad_token=<pad>`, `tokens: 1024`.
_NAME = (
    r"[A-Za-z0-9_.-]*(?:pass(?:word|wd|phrase)|[_-]pwd|secret|credentials?|sentry_dsn"
    r"|(?:api|access|secret|private|signing|encryption|account|licen[cs]e)[_-]?key(?:[_-]?id)?"
    r"|(?:access|api|app|auth|bearer|bot|client|csrf|gh|github|gitlab|hf|hub|id|jwt|refresh|secret"
    r"|security|session|slack|telegram|user|wandb)[_-]?token)"
)
_ASSIGNED = (
    r"((?i:" + _NAME + r"\\?[\"']?\s*(?::=|=>|=|:)\s*|--?" + _NAME + r"\s+)"
    r"|\b[A-Z][A-Z0-9_]*_(?:TOKEN|KEY|SECRET|PASS)=)"
)
_PREFIXED = (
    r"sk-(?:ant|admin|lf|or|proj|svcacct)-[A-Za-z0-9_-]{12,}|sk-[A-Za-z0-9]{16,}"
    r"|[prs]k_(?:live|test)_[A-Za-z0-9]{12,}|gsk_[A-Za-z0-9]{20,}|nvapi-[A-Za-z0-9_-]{20,}"
    r"|hf_[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{16,}|wandb_v[0-9]_[A-Za-z0-9_-]{20,}"
    r"|gh[oprsu]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{8,}|xapp-[A-Za-z0-9-]{8,}"
    r"|A(?:GPA|IDA|IPA|KIA|NPA|NVA|ROA|SIA)[A-Z0-9]{16}"
    r"|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{16,}|dapi[0-9a-f]{32}|npm_[A-Za-z0-9]{30,}"
    r"|pypi-[A-Za-z0-9_-]{40,}|dckr_pat_[A-Za-z0-9_-]{20,}|do[opr]_v1_[0-9a-f]{40,}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|[0-9]{8,10}:[A-Za-z0-9_-]{35}"
    r"|eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,4}"  # JWT, JWE
)
_PRIVATE_KEY = (
    r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY[^-]*-----|\z)"
)
_QUERY = (
    r"(?i)([?&;](?:sig|signature|token|code|(?:access|api|auth|id)_?(?:token|key)|key|secret"
    r"|password|x-(?:amz|goog)-[a-z-]+)=)[^&\s\"'<>#]+"
)
_TO_SPACE = r"[^\s\"'<>]+"

_RULES = tuple(
    (re2.compile(pattern), replacement)
    for pattern, replacement in (
        (_PRIVATE_KEY, REDACTED),
        (r"(?i)([a-z][a-z0-9+.-]*://)[^\s/:@]*:[^\s/]*@", rf"\1{REDACTED}@"),
        (r"(?i)([a-z][a-z0-9+.-]*://)[A-Za-z0-9_-]{20,}@", rf"\1{REDACTED}@"),
        (r"(?i)(https?://hooks\.[^\s/\"'<>]+/)" + _TO_SPACE, rf"\1{REDACTED}"),
        (r"(?i)(https?://[^\s\"'<>]+/(?:web)?hooks?[a-z0-9]{0,2}/)" + _TO_SPACE, rf"\1{REDACTED}"),
        (r"(?i)(api\.telegram\.org/bot)[^\s/\"'<>]+", rf"\1{REDACTED}"),
        (_QUERY, rf"\1{REDACTED}"),
        (
            r"(?i)(authorization\\?[\"']?\s*[:=]\s*\\?[\"']?)(?:[a-z0-9-]+[ \t]+)?[^\s\"'\\]+",
            rf"\1{REDACTED}",
        ),
        (r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{6,}", rf"\1{REDACTED}"),
        (r"(?i)(\bcookie:\s*)[^\n]+", rf"\1{REDACTED}"),
        (r"(?i)(wandb[ .]login\b[^A-Za-z0-9\n]+(?:\S+\s+)*?(?:key=[\"']?)?)[A-Za-z0-9_-]{20,}",
         rf"\1{REDACTED}"),
        (r"(?i)(\btoken\\?[\"']?\s*[:=]\s*\\?[\"']?)[A-Za-z0-9._~+/=-]{16,}", rf"\1{REDACTED}"),
        (_ASSIGNED + r"(\\[\"'])[^\"'\\\n]+", rf"\1\2{REDACTED}"),
        (_ASSIGNED + r"(\")(?:[^\"\\\n]|\\.)+", rf"\1\2{REDACTED}"),
        (_ASSIGNED + r"(')(?:[^'\\\n]|\\.)+", rf"\1\2{REDACTED}"),
        (_ASSIGNED + r"[^\s\"'\\]\S*", rf"\1{REDACTED}"),
        (r"(\b|_)(?:" + _PREFIXED + r")", rf"\1{REDACTED}"),
    )
)  # fmt: skip
"""The forms with a structure first: what is left of them is taken by its prefix."""


def redact(text: str) -> str:
    """`text` with keys, tokens and passwords replaced by `[redacted]`.

    Lone surrogates become U+FFFD. Known forms only: a secret that looks like a
    word, a hash or a UUID and stands under no telling name is not recognised.
    """
    kept = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for pattern, replacement in _RULES:
        kept = pattern.sub(replacement, kept)
    return str(kept)
