"""Secrets that no output may show: made up, each of the form that its issuer gives it."""

import random
import string

_DRAW = random.Random(8)
_ALNUM = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"


def _drawn(length: int, characters: str = _ALNUM) -> str:
    return "".join(_DRAW.choice(characters) for _ in range(length))


def _key_lines(kind: str, width: int, lines: int) -> list[str]:
    body = [_drawn(width, _ALNUM + "+/") for _ in range(lines)]
    return [f"-----BEGIN {kind}PRIVATE KEY-----", *body, f"-----END {kind}PRIVATE KEY-----"]


PASSWORD = _drawn(14)
_HOOK = f"T{_drawn(10).upper()}/B{_drawn(10).upper()}/{_drawn(24)}"
_RSA, _OPENSSH = _key_lines("RSA ", 64, 5), _key_lines("OPENSSH ", 70, 4)
_GCP = "\\n".join(_key_lines("", 64, 3))

PLANTED = {
    "hugging face": f"hf_{_drawn(34)}",
    "openai": f"sk-proj-{_drawn(20)}T3BlbkFJ{_drawn(20)}",
    "openai, old": f"sk-{_drawn(48)}",
    "anthropic": f"sk-ant-api03-{_drawn(93)}AA",
    "github": f"ghp_{_drawn(36)}",
    "github, fine-grained": f"github_pat_{_drawn(22)}_{_drawn(59)}",
    "gitlab": f"glpat-{_drawn(20)}",
    "aws key id": f"AKIA{_drawn(16, string.ascii_uppercase + '234567')}",
    "gcp api key": f"AIza{_drawn(35)}",
    "gcp oauth": f"ya29.{_drawn(60)}",
    "slack bot": f"xoxb-{_drawn(12, string.digits)}-{_drawn(13, string.digits)}-{_drawn(24)}",
    "slack webhook": f"https://hooks.slack.com/services/{_HOOK}",
    "jwt": f"eyJ{_drawn(33)}.eyJ{_drawn(60)}.{_drawn(43)}",
    "nvidia": f"nvapi-{_drawn(64)}",
    "databricks": f"dapi{_drawn(32, _HEX)}",
    "npm": f"npm_{_drawn(36)}",
    "pypi": f"pypi-AgEIcHlwaS5vcmc{_drawn(80)}",
    "sendgrid": f"SG.{_drawn(22)}.{_drawn(43)}",
    "stripe": f"sk_live_{_drawn(24)}",
    "telegram bot": f"{_drawn(9, string.digits[1:])}:{_drawn(35)}",
    "discord bot": f"M{_drawn(24)}.{_drawn(6)}.{_drawn(27)}",
    "vault": f"hvs.{_drawn(30)}",
    "replicate": f"r8_{_drawn(37)}",
    "w&b, new": f"wandb_v1_{_drawn(40)}",
}
"""By issuer, what a line may hold anywhere."""

IN_CONTEXT = {
    "w&b key": ("WANDB_API_KEY={}", _drawn(40, _HEX)),
    "w&b login": ("+ wandb login --relogin {}", _drawn(40, _HEX)),
    "aws secret": ("export AWS_SECRET_ACCESS_KEY={}", _drawn(40, _ALNUM + "+/")),
    "password in a URL": ("postgres://trainer:{}@db.internal:5432/runs", PASSWORD),
    "password": ("--db-password {}", _drawn(12)),
    "json": ('{{"client_secret": "{}", "lr": 1}}', _drawn(24)),
    "bearer": ("> Authorization: Bearer {}", _drawn(40)),
    "basic": ("> Authorization: Basic {}", _drawn(28)),
    "query": ("GET https://example.org/x?a=1&sig={}&b=2", _drawn(43)),
    "cookie": ("Cookie: session={}", _drawn(32)),
    "azure": ("AccountKey={}==", _drawn(86, _ALNUM + "+/")),
    "gcp service account": ('{{"private_key": "{}\\n"}}', _GCP),
}
"""What only its surroundings show to be a secret: a line, and what stands in it."""

KEY_FILES = {"rsa": _RSA, "openssh": _OPENSSH}
"""Private keys over several lines."""

LINES = [
    *(f"loaded credentials {secret} from the environment" for secret in PLANTED.values()),
    *(form.format(secret) for form, secret in IN_CONTEXT.values()),
]

NEEDLES = [
    *(secret.rpartition("/")[2][-20:] for secret in PLANTED.values()),
    *(secret[-20:] for _, secret in IN_CONTEXT.values() if "PRIVATE" not in secret),
    *_GCP.split("\\n")[1:-1],
    *(line for lines in KEY_FILES.values() for line in lines[1:-1]),
]
"""What must not be found anywhere: the part of each that gives it away."""


def found_in(text: str) -> list[str]:
    """The secrets that a text shows, whatever the case of their letters."""
    lower = text.lower()
    return [needle for needle in NEEDLES if needle.lower() in lower]
