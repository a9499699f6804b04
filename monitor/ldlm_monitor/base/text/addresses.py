"""Network addresses in the forms that settings and URLs have."""

import ipaddress


def is_loopback(host: str | None) -> bool:
    """Whether the name or address leads to this machine only; False for None."""
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def address(listen: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, without an IPv6 address's brackets."""
    host, _, port = listen.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)
