"""Who a request comes from: basic and bearer credentials (RFC 7617, RFC 6750)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

Grant: TypeAlias = Literal["user", "token", "anyone"]
"""By what a client came in; `anyone` where nothing is asked."""

_REMEMBERED = 256
_LONGEST_PASSWORD = 72
"""Bytes; bcrypt looks at no more, and refuses what is longer."""


class Access:
    """Users by their bcrypt hashes, and tokens; where there is neither, anyone may come in.

    Raises ValueError for what is no such hash. bcrypt is slow on purpose, so what it said is
    remembered (under a key of this process, not as it was sent), and it looks at one password at
    a time. An unknown user takes as long as a wrong password.
    """

    def __init__(self, users: Mapping[str, str], tokens: Iterable[str]) -> None:
        self._users = {name: text.encode() for name, text in users.items()}
        self._tokens = tuple(_digest(token.encode()) for token in tokens)
        self._key = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, bool] = OrderedDict()
        self._lock = threading.Lock()
        for name, hashed in self._users.items():
            self._check(name, hashed)
        self._decoy = next(iter(self._users.values()), b"")

    @property
    def asks(self) -> bool:
        """Whether credentials are needed."""
        return bool(self._users or self._tokens)

    @property
    def challenge(self) -> str:
        """The value of `WWW-Authenticate`."""
        basic = ['Basic realm="ldlm-monitor", charset="UTF-8"'] if self._users else []
        return ", ".join([*basic, *(['Bearer realm="ldlm-monitor"'] if self._tokens else [])])

    def judge(self, authorization: str) -> Grant | None:
        """What the header `Authorization` gives a right to; None: nothing."""
        if not self.asks:
            return "anyone"
        scheme, _, told = authorization.strip().partition(" ")
        told = told.strip()
        if scheme.lower() == "bearer":
            return "token" if self._is_token(told.encode("latin-1", "replace")) else None
        if scheme.lower() == "basic" and self._users:
            return "user" if self._is_user(told) else None
        return None

    def _is_token(self, told: bytes) -> bool:
        digest = _digest(told)
        # All are compared, whichever fits.
        return sum(hmac.compare_digest(digest, token) for token in self._tokens) > 0

    def _is_user(self, told: str) -> bool:
        try:
            name, colon, password = base64.b64decode(told, validate=True).partition(b":")
        except (binascii.Error, ValueError):
            return False
        if not colon or len(password) > _LONGEST_PASSWORD:
            return False
        hashed = self._users.get(name.decode("utf-8", "replace"))
        matches = self._matches(password, hashed or self._decoy)
        return matches and hashed is not None

    def _matches(self, password: bytes, hashed: bytes) -> bool:
        key = hmac.digest(self._key, hashed + b"\0" + password, "sha256")
        if (known := self._known.get(key)) is not None:
            return known
        import bcrypt

        with self._lock:
            try:
                found = bcrypt.checkpw(password, hashed)
            except ValueError:
                found = False
            self._known[key] = found
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return found

    @staticmethod
    def _check(name: str, hashed: bytes) -> None:
        import bcrypt

        try:
            bcrypt.checkpw(b"", hashed)
        except ValueError:
            raise ValueError(f'what stands for "{name[:60]}" is no bcrypt hash') from None


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
