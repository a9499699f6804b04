"""Checks of a request: its credentials (basic and bearer), and the host name that it uses."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

Grant: TypeAlias = Literal["user", "token", "anyone"]
"""The kind of credentials that a client sent; `anyone` if none are required."""

NOT_OUR_NAME = (  # the answer to a `Host` that `HostNames` does not accept
    "this server does not have the name of your request: use localhost or its address, "
    "or add the name to allowed_hosts"
)
NOT_FROM_OTHER_SITES = "web pages of other sites get no answer"

_CACHED = 256
"""Results of bcrypt that are cached: a choice; clients are fewer, and each guess uses memory."""
_HOST = re.compile(r"(?:\[(?P<address>[^\[\]]+)\]|(?P<name>[\w.-]+))(?::\d*)?", re.ASCII)
"""`Host` (RFC 9110, 7.2): a name or address, and a port; no user, path or fragment."""
_PAGES = re.compile(r"/(?:runs/.*|metrics|-/(?:healthy|ready))?", re.DOTALL)
"""Paths of what a link on another site may open: pages for people, which change nothing."""
_MAX_PASSWORD = 72  # bytes of a password: bcrypt ignores or refuses longer ones


class Access:
    """The users' bcrypt hashes, and the tokens (RFC 7617, RFC 6750); without both, anyone enters.

    Raises ValueError for a string that is no bcrypt hash. bcrypt is slow on purpose: results are
    cached under an HMAC with a random key, and one password is checked at a time, in a thread.
    An unknown user takes as long as a wrong password.
    """

    def __init__(self, users: Mapping[str, str], tokens: Iterable[str]) -> None:
        self._users = {name: text.encode() for name, text in users.items()}
        self._tokens = tuple(_digest(token.encode()) for token in tokens)
        self._key = secrets.token_bytes(32)  # the size of a SHA-256 digest
        self._cache: dict[bytes, bool] = {}
        self._lock = asyncio.Lock()
        for name, hashed in self._users.items():
            _check_hash(name, hashed)
        self._decoy = next(iter(self._users.values()), b"")

    @property
    def is_required(self) -> bool:
        """Whether a request needs credentials."""
        return bool(self._users or self._tokens)

    @property
    def challenge(self) -> str:
        """The value of `WWW-Authenticate`."""
        basic = ['Basic realm="ldlm-monitor", charset="UTF-8"'] if self._users else []
        return ", ".join([*basic, *(['Bearer realm="ldlm-monitor"'] if self._tokens else [])])

    async def grant(self, authorization: str) -> Grant | None:
        """The kind of the credentials in the header `Authorization`; None if missing or wrong."""
        if not self.is_required:
            return "anyone"
        scheme, _, credentials = authorization.strip().partition(" ")
        credentials = credentials.strip()
        if scheme.lower() == "bearer":
            return "token" if self._is_token(credentials.encode("latin-1", "replace")) else None
        if scheme.lower() == "basic" and self._users:
            return "user" if await self._is_user(credentials) else None
        return None

    def _is_token(self, credentials: bytes) -> bool:
        digest = _digest(credentials)
        # Every token is compared, so that the time does not show which one matches.
        return sum(hmac.compare_digest(digest, token) for token in self._tokens) > 0

    async def _is_user(self, credentials: str) -> bool:
        try:
            name, colon, password = base64.b64decode(credentials, validate=True).partition(b":")
        except (binascii.Error, ValueError):
            return False
        if not colon or len(password) > _MAX_PASSWORD:
            return False
        hashed = self._users.get(name.decode("utf-8", "replace"))
        matches = await self._matches(password, hashed or self._decoy)
        return matches and hashed is not None

    async def _matches(self, password: bytes, hashed: bytes) -> bool:
        import bcrypt

        key = hmac.digest(self._key, hashed + b"\0" + password, "sha256")
        if key not in self._cache:
            async with self._lock:
                self._cache[key] = await asyncio.to_thread(bcrypt.checkpw, password, hashed)
            if len(self._cache) > _CACHED:
                del self._cache[next(iter(self._cache))]
        return self._cache.get(key, False)


def _check_hash(name: str, hashed: bytes) -> None:
    import bcrypt

    try:
        bcrypt.checkpw(b"", hashed)
    except ValueError:
        raise ValueError(f'the value of "{name[:60]}" is no bcrypt hash') from None  # one line


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


class HostNames:
    """The names in `Host` that the server answers: localhost, addresses, and those `allowed`.

    After a web page is loaded, its site may let its name resolve to 127.0.0.1 (DNS rebinding). The
    browser then treats our answers as that site's, but sends the site's name in `Host`. An address
    in `Host` cannot be rebound. A client that sends no `Host` is no browser.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = {"localhost", *(_normalized(name) for name in allowed)}

    def accepts(self, header: str | None) -> bool:
        """Whether to answer a request with this `Host`, with or without its port."""
        if not header:
            return True
        if (found := _HOST.fullmatch(header)) is None:
            return False
        name = _normalized(found["name"] or "")
        try:
            if name not in self._allowed:
                ipaddress.ip_address(found["address"] or name)
        except ValueError:
            return False
        return True


def is_of_another_site(headers: Mapping[str, str], method: str, path: str) -> bool:
    """Whether a web page of another origin makes the browser send the request.

    Browsers say so by Fetch metadata (https://www.w3.org/TR/fetch-metadata/) to servers on
    loopback and to those with TLS; other clients, and proxies such as Grafana's, send none, or
    `same-origin`. A page cannot read the answer, but a query costs time, and a command acts. A
    person may follow a link to a page of ours. A port of the same host is another origin.
    """
    if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return False
    is_link = (
        method in ("GET", "HEAD")
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )
    return not (is_link and _PAGES.fullmatch(path))


def has_foreign_origin(headers: Mapping[str, str]) -> bool:
    """Whether `Origin` (RFC 6454) is there and not that of the server that is asked."""
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != headers.get("host")


def _normalized(name: str) -> str:
    return name.lower().removesuffix(".")
