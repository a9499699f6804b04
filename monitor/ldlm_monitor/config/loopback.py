"""Whether an address is this machine's own."""

import ipaddress


def is_loopback(host: str | None) -> bool:
    """Whether only this machine is reached by that name or address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
