"""By which names a server may be asked, so that no page's own name can be made to lead here.

A page of another site may let its name resolve to 127.0.0.1 once it is loaded (DNS rebinding): for
the browser our answers are that site's then. Its requests bear that name in `Host`. An address is
no name and cannot be moved so; a client that says no `Host` at all is no browser.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

NOT_OURS = (
    "this server does not go by the name of your request: ask it by localhost or by its address, "
    "or add the name to allowed_hosts"
)


class HostNames:
    """`localhost`, every address, and those that are `allowed`."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = {"localhost", *(_plain(name) for name in allowed)}

    def know(self, header: str | None) -> bool:
        """Whether a request with this `Host` (with or without its port) is meant for us."""
        if not header:
            return True
        try:
            name = _plain(urlsplit(f"//{header}").hostname or "")
        except ValueError:
            return False
        return name in self._allowed or _is_address(name)


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
