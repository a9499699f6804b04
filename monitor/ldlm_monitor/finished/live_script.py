"""The script of pages that a daemon serves: ages tick, and what changed is fetched anew."""

import base64
import hashlib
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files

from ldlm_monitor.base.text.format import duration


@cache
def live_script() -> str:
    """The script. Its page has a `main` with `data-now` (Unix seconds, when it was made),
    `data-every` (seconds between two fetches at least) and `data-stream` (the URL of
    `/api/v1/stream`), and an element `live` for what it says of the connection.
    """
    return (files(__package__) / "live.js").read_text("utf-8")


def script_policy(*scripts: str, connects: bool) -> str:
    """The content security policy of a page with these scripts, each by its hash, and no other.

    `connects`: whether they may ask the server that the page is from.
    """
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'"
        for each in scripts
    )
    asks = "; connect-src 'self'; form-action 'self'" if connects else ""
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}{asks}"


def age(at: float, now: float) -> str:
    """How long ago `at` was (both Unix seconds), as HTML that the script lets tick."""
    try:
        stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # a log may have any number
        return ""
    shown = duration(max(now - at, 0.0))
    return f'<time data-age="{at:.3f}" datetime="{stamp}">{shown}</time>'
