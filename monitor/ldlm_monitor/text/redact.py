r"""Hides secrets in log text before it leaves the machine.

Every pattern runs on RE2, so the time is linear in the text whatever it holds.
Where a secret and a word look alike, the word is hidden too: a hidden word costs
a look at the log, a posted secret costs the account.
"""

from typing import Any

import re2

REDACTED = "[redacted]"

# `token` alone is no sign of a secret: `pad_token=<pad>`, `tokens: 1024`. Nor does `pass`.
_NAME = (
    r"[A-Za-z0-9_.-]*(?:pass(?:word|wd|phrase)|contrase(?:n|\x{f1})a|[_-]pwd|secret|credentials?"
    r"|sentry_dsn|(?:api|db|database|key|sl|cloudant)[_-]?(?:pass|pwd|pw)"
    r"|(?:api|access|secret|private|priv|signing|encryption|account|licen[cs]e|auth|service|db"
    r"|database|client)[_-]?key(?:[_-]?id)?"
    r"|(?:access|api|app|auth|bearer|bot|client|cloudant|csrf|gh|github|gitlab|hf|hub|id|jwt"
    r"|refresh|secret|security|session|sl|slack|softlayer|telegram|user|wandb)[_-]?token)"
)
_ASSIGNED = (
    r"((?i:" + _NAME + r"\\?[\"']?\]?\s*(?:::|:=|=>|=|:)\s*|--?" + _NAME + r"\s+)"
    r"|\b[A-Z][A-Z0-9_]*_(?:TOKEN|KEY|SECRET|PASS)=)"
)
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
_PRIVATE_KEY = (
    r"(?s)(?:-+ *)?BEGIN [A-Z0-9 ]*PRIVATE KEY.*?(?:END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*(?: *-+)?|\z)"
    r"|PuTTY-User-Key-File-[0-9].*?(?:Private-MAC: *[0-9a-f]*|\z)"
)
_QUERY = (
    r"(?i)([?&;](?:sig|signature|token|code|(?:access|api|auth|id)_?(?:token|key)|key|secret"
    r"|password|x-(?:amz|goog)-[a-z-]+)=)[^&\s\"'<>#]+"
)
_VENDOR = (
    r"(?i)((?:\b|[_-])(?:(?:api|cloudant|cloud|clou|cl|cos|iam|ibm(?:[_-]?cos)?|secret|softlayer|sl)"
    r"(?:[_-]{0,2}(?:access|api|cloud|hmac|iam|secret)){0,3}[_-]{0,2}"
    r"(?:key|password|pass|pwd|pw|token)|pass|pwd)"
    r"[\"']?\]?\s*(?:::|:=|=>|=|:|\s)\s*[\"']?)"
)
_TO_SPACE = r"[^\s\"'<>]+"

_RULES = (
    (_PRIVATE_KEY, REDACTED),
    (r"(?i)(://)[^\s/:@]*:[^\s/]*@", rf"\1{REDACTED}@"),
    (r"(?i)([a-z][a-z0-9+.-]*://)[A-Za-z0-9_-]{20,}@", rf"\1{REDACTED}@"),
    (r"(?i)(https?://hooks\.[^\s/\"'<>]+/)" + _TO_SPACE, rf"\1{REDACTED}"),
    (r"(?i)(https?://[^\s\"'<>]+/(?:web)?hooks?[a-z0-9]{0,2}/)" + _TO_SPACE, rf"\1{REDACTED}"),
    (r"(?i)(https?://(?:hc-ping\.com|cronitor\.link|nosnch\.in)/)" + _TO_SPACE, rf"\1{REDACTED}"),
    (r"(?i)(api\.telegram\.org/bot)[^\s/\"'<>]+", rf"\1{REDACTED}"),
    (r"(?i)(https?://api.softlayer.com/soap/v3(?:.1)?/)[a-z0-9]+", rf"\1{REDACTED}"),
    (_QUERY, rf"\1{REDACTED}"),
    (
        r"(?i)(authorization\\?[\"']?\s*[:=]\s*\\?[\"']?)(?:[a-z0-9-]+[ \t]+)?[^\s\"'\\]+",
        rf"\1{REDACTED}",
    ),
    (r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{6,}", rf"\1{REDACTED}"),
    (r"(?i)(\bcookie:\s*)[^\n]+", rf"\1{REDACTED}"),
    (
        r"(?i)(wandb[ .]login\b[^A-Za-z0-9\n]+(?:\S+\s+)*?(?:key=[\"']?)?)[A-Za-z0-9_-]{20,}",
        rf"\1{REDACTED}",
    ),
    (
        r"(?i)(\btoken\\?[\"']?\]?\s*(?:::|:=|=>|=|:)\s*\\?[\"']?)[A-Za-z0-9._~+/=-]{16,}",
        rf"\1{REDACTED}",
    ),
    (
        r"(?i)(aws.{0,20}?(?:key|pwd|pw|password|pass|token).{0,20}?['\"])[0-9a-z/+]{40}",
        rf"\1{REDACTED}",
    ),
    (_VENDOR + r"[a-z0-9_-]{24,}", rf"\1{REDACTED}"),
    (_ASSIGNED + r"(\\[\"'])[^\"'\\\n]+", rf"\1\2{REDACTED}"),
    (_ASSIGNED + r"(\")(?:[^\"\\\n]|\\.)+", rf"\1\2{REDACTED}"),
    (_ASSIGNED + r"(')(?:[^'\\\n]|\\.)+", rf"\1\2{REDACTED}"),
    (_ASSIGNED + r"[^\s\"'\\]\S*", rf"\1{REDACTED}"),
    (r"(\b|_)(?:" + _PREFIXED + r")", rf"\1{REDACTED}"),
)
"""The forms with a structure first: what is left of them is taken by its prefix."""

_KEY_LINE = r"(?m)(^|\s)(?:[A-Za-z0-9+/]{64}|[A-Za-z0-9+/]{70}|[A-Za-z0-9+/]{76})\s*$"
"""A full line of a private key's body by itself: PEM has 64 characters, OpenSSH 70, MIME 76."""


_SCAN_MEMORY = 64 * 1024 * 1024
"""Bytes for RE2's automaton of all rules; its default is 8 MiB."""


def _compile() -> tuple[tuple[Any, ...], Any]:
    """The rules, and one set search that finds which of them a text needs."""
    options = re2.Options()
    options.max_mem = _SCAN_MEMORY
    scan = re2.Set.SearchSet(options)
    patterns = [pattern for pattern, _ in _RULES]
    for pattern in (*patterns, _KEY_LINE):
        scan.Add(pattern)
    scan.Compile()
    return tuple(re2.compile(pattern) for pattern in (*patterns, _KEY_LINE)), scan


_COMPILED, _SCAN = _compile()


def redact(text: str) -> str:
    """`text` with keys, tokens and passwords replaced by `[redacted]`.

    Lone surrogates become U+FFFD. Known forms only: a secret that looks like a
    word, a hash or a UUID and has no name that marks it as a secret is not recognised.
    """
    kept = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for number in sorted(_SCAN.Match(kept) or ()):
        if number < len(_RULES):
            kept = _COMPILED[number].sub(_RULES[number][1], kept)
        else:
            kept = _COMPILED[number].sub(_without_key, kept)
    return str(kept)


def _without_key(found: Any) -> str:
    """A digest in hexadecimal has not both cases."""
    line = found.group(0)
    kinds = (str.isupper, str.islower, str.isdigit)
    is_key = all(any(map(kind, line)) for kind in kinds)
    return f"{found.group(1)}{REDACTED}" if is_key else line
