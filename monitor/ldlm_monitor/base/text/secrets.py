r"""Secrets in a text are hidden by what their names mean, and by the form of known tokens.

If a word looks like a secret, it is hidden too: a hidden word costs a look at the log, a posted
secret costs the account. Every pattern runs on RE2, whose time is linear in the text for any
input. The words and tokens are in `secret_words`; docs/security.md says why no library's list.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

import re2

from ldlm_monitor.base.text.secret_words import (
    AFTER_NAME,
    CALLS,
    NAMES,
    PASSWORDS,
    PROGRAMS,
    TOKENS,
    USER_OPTIONS,
    WEAK_NAMES,
)

REDACTED = "[redacted]"  # stands where a secret was

_STRONG = rf"[A-Za-z0-9_.-]*(?:{PASSWORDS}|{NAMES}){AFTER_NAME}"
_WEAK = rf"(?:[A-Za-z0-9_.-]*[_.-]|\b)(?:[a-z]+Token|{WEAK_NAMES})"
_LEAST_RANDOM = 8
"""Characters of a value that may be random: a choice; shorter ones are words or numbers."""
# What may stand between a name and its sign: quotes, escaped ones, those of HTML and of URLs.
_CLOSE = r"(?:\\*[\"'`]|&(?:quot|\#39|\#x27);|%22|[\])])*"
_SIGN = r"\s*(?:::|:=|=>|=|:|\x{ff1a}|\x{ff1d}|\\u003[ad]|%3[ad])\s*"
_PAIR = r"[\"']?(?:\s*,)?\s*[\"']?\bvalue[\"']?\s*[:=]\s*"  # `name: HF_TOKEN`, `value: X`
_ITEM = r"\\*[\"'`]\s*,\s*"  # the next in a list, or of a tuple
# Signs of which prose is full, too.
_LOOSE = r"[\"'`]?(?:\s+(?:is|->)\s+|\s*[|\x{2502}]\s*|\s*\.{3,}\s*|\s+`?)"
_OPTION = r"(?:^|[\s\"'`\[(,=])--?"
_GAP = r"(?:[\"'`]?\s*,\s*b?|[\"'`]?\s+`?|=)"
# A value with its quotes; unquoted, it ends at a blank, but not if another name ends there.
_VALUE = (
    r"(?:('\"'\"'|\"'\"'\"|\\+[\"'])[^\"'\\\n]+|((?:[bru$]|!!str\s+)?\"\"\")[^\"]+"
    r"|((?:[bru$]|!!str\s+)?\")(?:[^\"\\\n]|\\.)+|((?:[bru$]|!!str\s+)?')(?:[^'\\\n]|\\.)+"
    r"|([A-Za-z_.&]{0,20}[\[({]+)[^\])}\n]+"
    r"|((?:!!str\s+)?)[^\s\"'\\](?:\S*(?::|[,;=]--?[A-Za-z_-]+)[ \t]+\S+|\S*))"
)
_WORD = r"[A-Za-z0-9._~+/=!@\#%^&*-]"
_RANDOM = rf"((?:[A-Za-z_]{{1,20}}\()?b?\\*[\"'`$]*)({_WORD}{{{_LEAST_RANDOM},}})"
_TO_SPACE = r"[^\s\"'<>]+"  # the rest of a URL

_SHOWN = frozenset(("none", "null", "nil", "true", "false", "undefined", "str", "optional"))
"""Values that are none."""
_CHANGES = 0.34
"""Share of neighbours of another kind (small, capital, digit) in a random word, at the least.
Letters and digits drawn at random have 0.62, hexadecimal ones 0.47, words in CamelCase 0.3."""


def _is_random(word: str) -> bool:
    """Whether a part of a word, between its signs, has kinds of characters as if drawn."""
    kinds = "".join(
        "a" if each.islower() else "A" if each.isupper() else "0" if each.isdigit() else " "
        for each in word
    )
    for part in kinds.split():
        changes = sum(one != two for one, two in pairwise(part))
        if len(part) >= _LEAST_RANDOM and changes >= max(3, _CHANGES * (len(part) - 1)):
            return True
    return False


def _whole(found: Any) -> str:
    """Group 1 stays."""
    return f"{found.group(1)}{REDACTED}"


def _named(found: Any) -> str:
    """A value by its name: the name and the opening quote stay."""
    line, kept = str(found.group(0)), "".join(each for each in found.groups() if each)
    value = line[len(kept) :].rstrip(",;)]}").lower()
    is_hidden = line[len(found.group(1)) :].lstrip("\\\"'").startswith(REDACTED[:-1])
    return line if is_hidden or value in _SHOWN or not value.strip("*:=->") else kept + REDACTED


def _option(found: Any) -> str:
    """The word after an option, unless it is another option."""
    kept = "".join(each for each in found.groups() if each)
    return str(found.group(0)) if found.group(0)[len(kept) :].startswith("--") else _named(found)


def _weak(found: Any) -> str:
    """A value that looks random."""
    head, opener, value = found.groups()
    if value.startswith(("/", "~", "./")) or not _is_random(value):
        return str(found.group(0))
    return f"{head}{opener}{REDACTED}"


def _url(found: Any) -> str:
    """User and password of a URL; a port and what follows is none."""
    scheme, secret = found.groups()
    rest = secret.partition(":")[2]
    after_port = rest.lstrip("0123456789")
    is_port = 0 < len(rest) - len(after_port) <= 5 and after_port.startswith(("/", "<"))
    return str(found.group(0)) if is_port else f"{scheme}{REDACTED}@"


def _of_all_kinds(found: Any) -> str:
    """Hidden, unless its letters are of one case, as in hexadecimal digests."""
    kept = str(found.group(1))
    word = found.group(0)[len(kept) :]
    is_key = all(any(map(kind, word)) for kind in (str.isupper, str.islower, str.isdigit))
    return kept + REDACTED if is_key else str(found.group(0))


def _by_program(programs: str, option: str) -> str:
    gap = r"[\"'`]?" if option.endswith("+") else r"(?:[\"'`]?(?:\s*,\s*|\s+)|=?)[\"'`]?"
    return (
        rf"(\b(?:{programs})\b[\"'`]?[\s,](?:[^\n|;&]*?[\s\"'`])?{option.rstrip('+')}{gap})"
        r"[^\s\"'`,\]=-][^\s\"'`,\]]*"
    )


# Blocks of PEM and PuTTY keys; a block without its last line goes to the text's end.
_PRIVATE_KEY = (
    r"(?s)()(?:(?:-+ *)?BEGIN [A-Z0-9 ]*PRIVATE KEY"
    r".*?(?:END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*(?: *-+)?|\z)"
    r"|PuTTY-User-Key-File-[0-9].*?(?:Private-MAC: *[0-9a-f]*|\z))"
)
# Parameters of URLs that grant access; `x-amz-` and `x-goog-` sign the URLs of S3 and GCS.
_QUERY = (
    r"(?i)([?&;\#](?:[a-z0-9_-]*(?:sig|signature|token|secret|password|passwd|pwd|ticket|credential)"
    r"|code|pass|(?:access|api|auth|id|accesskey)_?(?:key|id)|awsaccesskeyid|key"
    r"|x-(?:amz|goog)-[a-z-]+)=)[^&\s\"'<>\#]+"
)
_AUTHORIZATION = (
    rf"(?i)(authorization{_CLOSE}\s*[:=,]\s*(?:b?\\?[\"'])?)"
    r"(?:digest[^\n]+|(?:[a-z0-9-]+[ \t]+)?[^\s\"'\\]+)"
)
# Names that detect-secrets expects before keys of IBM Cloud, Cloudant and SoftLayer.
_VENDOR = (
    r"(?i)((?:\b|[_-])(?:(?:api|cloudant|cloud|clou|cl|cos|iam|ibm(?:[_-]?cos)?|secret|softlayer|sl)"
    r"(?:[_-]{0,2}(?:access|api|cloud|hmac|iam|secret)){0,3}[_-]{0,2}"
    r"(?:key|password|pass|pwd|pw|token)|pass|pwd)"
    r"[\"']?\]?\s*(?:::|:=|=>|=|:|\s)\s*[\"']?)"
)

_RULES: tuple[tuple[str, Callable[[Any], str]], ...] = (
    (_PRIVATE_KEY, _whole),
    (r"(://)([^\s/:@]*:(?:[^\s\"']*|[^\s/]*))@", _url),
    # A token as a URL's user.
    (r"(?i)([a-z][a-z0-9+.-]*://)([A-Za-z0-9_-]{20,}(?::[^\s/@\"'<>]*)?)@", _url),
    (r"(?i)(:thin:[^\s/@\"']+/)[^\s@\"']+", _whole),  # Oracle's user/password
    (r"(\b[A-Za-z0-9_.-]+:)()([^\s:@/\"'()<>]{8,})@", _weak),
    (r"(?i)(https?://hooks\.[^\s/\"'<>]+/)" + _TO_SPACE, _whole),
    (r"(?i)(https?://[^\s\"'<>]+/(?:web)?hooks?[a-z0-9]{0,2}/)" + _TO_SPACE, _whole),
    # URLs of dead man's switches: who has one can keep the switch quiet.
    (r"(?i)(https?://(?:hc-ping\.com|cronitor\.link|nosnch\.in)/)" + _TO_SPACE, _whole),
    (r"(?i)(api\.telegram\.org/bot)[^\s/\"'<>]+", _whole),
    (r"(?i)(https?://api.softlayer.com/soap/v3(?:.1)?/)[a-z0-9]+", _whole),
    # Before what follows: a value without quotes goes on to a blank, and may end in an option.
    (rf"(?i)({_OPTION}(?:{_STRONG}|passwd){_GAP})" + _VALUE, _option),
    (_QUERY, _whole),
    (_AUTHORIZATION, _whole),
    (r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{6,}", _whole),
    (r"(?i)(\bcookie:\s*)[^\n]+", _whole),
    (r"(?i)(<cookie [^\s=>]+=)[^\s>]+", _whole),
    (rf"(?i)(cookies?(?:\\*[\"']\s*[:=,]|\s*=)\s*){_VALUE}", _named),
    (rf"(?i)(\b(?:[a-z_]*auth|[a-z_]*{CALLS})\s*=?\s*)(\(|\[)[^)\]\n]+", _named),
    (r"(?i)(wandb[ .]login\b[^A-Za-z0-9\n]+(?:\S+\s+)*?(?:key=[\"']?)?)[A-Za-z0-9_-]{20,}", _whole),
    (r"(?i)(wandb[^\n]*\n?[^\n]*\bkey\W{1,4})[0-9a-f]{40}", _whole),
    (r"(--from-literal[= ][^\s=]+=)\S+", _whole),  # of kubectl create secret
    # A long value of `token` is one, also if it is no random word; not a file's name.
    (rf"(?i)(\btoken{_CLOSE}{_SIGN}\\?[\"']?)[A-Za-z0-9~+/=-]{{16,}}", _whole),
    (r"(?i)(\b(?:key|token|secret)s?\b[\s:=\"']{1,4})[A-Za-z0-9+/_=-]{24,}", _of_all_kinds),
    (r"(?i)(aws.{0,20}?(?:key|pwd|pw|password|pass|token).{0,20}?['\"])[0-9a-z/+]{40}", _whole),
    (_VENDOR + r"[a-z0-9_-]{24,}", _whole),
    *((_by_program(*each), _whole) for each in PROGRAMS.items()),
    (
        rf"(\b(?:curl|wget|smbclient|lftp|http)\b[^\n|;&]*?{USER_OPTIONS}{_GAP}?[\"'`]?[^\s:\"'`%]*[:%])[^\s\"'`]+",
        _whole,
    ),
    (rf"(?i)(<(?:{_STRONG}|passwd)>)[^<>\n]+", _whole),
    (rf"(?i)({_STRONG}\"\s+value=)(\")[^\"\n]+", _named),
    # `passwd` alone is no name within a path: `/etc/passwd: Permission denied`.
    (
        rf"((?i:(?:{_STRONG}|(?:^|[^/A-Za-z0-9_.-])passwd)(?:{_CLOSE}{_SIGN}|{_PAIR}))"
        rf"|\b[A-Z][A-Z0-9_]*_(?:TOKEN|KEY|SECRET|PASS|AUTH|PAT|DSN)(?:=|{_PAIR}))" + _VALUE,
        _named,
    ),
    (r"(?i)([;,'\"]\s*(?:pwd|pass)[\"']?\s*[=:]\s*)([\"']?)[^\s;,\"'/~][^;,\"'\s]*", _named),
    (rf"(?i)({_STRONG}{_CLOSE}(?:{_LOOSE}|{_ITEM}|\s*\(\s*))" + _RANDOM, _weak),
    (rf"(?i)({_WEAK}{_CLOSE}(?:{_SIGN}|{_ITEM}|{_PAIR}|\s+is\s+))" + _RANDOM, _weak),
    (rf"(?i)({_OPTION}{_WEAK}{_GAP})" + _RANDOM, _weak),
    (r"(\b|_)(?:" + "|".join(form for _, form in TOKENS) + r")", _whole),
    # A whole line of a private key's body: PEM has 64 characters, OpenSSH 70, MIME 76.
    (r"(?m)(^|\s)(?:[A-Za-z0-9+/]{64}|[A-Za-z0-9+/]{70}|[A-Za-z0-9+/]{76})\s*$", _of_all_kinds),
)
"""Rules in order of use, and what makes the shown text of a match."""

_SCAN_MEMORY = 64 * 1024 * 1024
"""Bytes for RE2's automaton: a choice, 8 times the default; with too few it matches no rule."""


# Both at the first use: they take a twentieth of a short command's time.
@cache
def _scan() -> Any:
    """A set that finds in one search which rules match a text."""
    options = re2.Options()
    options.max_mem = _SCAN_MEMORY
    scan = re2.Set.SearchSet(options)
    for pattern, _ in _RULES:
        scan.Add(pattern)
    scan.Compile()
    return scan


_compiled = cache(re2.compile)


@lru_cache(1024)  # names come from logs
def is_secret_name(name: str) -> bool:
    """Whether a value of this name is a secret, whatever it is."""
    return bool(_compiled(rf"(?i){_STRONG}").fullmatch(name))


def hidden(text: str) -> str:
    """`text`, encodable as UTF-8, with secrets replaced by `[redacted]`."""
    for number in sorted(_scan().Match(text) or ()):
        pattern, shown = _RULES[number]
        text = str(_compiled(pattern).sub(shown, text))
    return text
