"""The daemon's address: the port it serves on, its URL, its file of service discovery."""

import errno
import logging
import socket
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.base.text.addresses import is_loopback
from ldlm_monitor.service.config import Settings
from ldlm_monitor.service.serve import Gate, Server
from ldlm_monitor.service.serve.access import HostNames
from ldlm_monitor.service.serve.metrics import target, write_target

_T = TypeVar("_T")
PORTS_TRIED = 20
"""Ports tried from the default on. A choice: 20 monitors need no setting; more hide leftovers."""

log = logging.getLogger(__name__)


def listen(settings: Settings, gate: Gate, bind: Callable[[str, int], Server]) -> Server:
    """Start a server on the configured address, or on the first free port after the default.

    `bind` makes the server of a host and a port. Raises `UsageError` if no port can be bound.
    """
    host, first = settings.listen_address
    is_explicit = "listen" in settings.model_fields_set
    server = bound((host, first), "--listen", bind, is_explicit=is_explicit)
    if server.port != first and not is_explicit:
        log.warning("port %d is taken: listening on %s:%d", first, host, server.port)
    if not is_loopback(host) and not gate.access().is_required:
        log.warning(
            "everyone who reaches %s:%d can read parts of the logs: see --web-config",
            host,
            server.port,
        )
    server.start()
    return server


def bound(
    address: tuple[str, int], flag: str, bind: Callable[[str, int], _T], *, is_explicit: bool
) -> _T:
    """The result of `bind` for the address; if it is a default one, for the first free port.

    Raises `UsageError` if no port can be bound; it names `flag`, which sets the address.
    """
    host, first = address
    for port in range(first, first + (1 if is_explicit else PORTS_TRIED)):
        try:
            return bind(host, port)
        except OSError as error:
            taken = error
            if error.errno != errno.EADDRINUSE:
                break
    raise UsageError(
        f"cannot listen on {host}:{first} ({taken.strerror})",
        where=flag,
        remedy="choose another HOST:PORT",
    ) from taken


def names_for(settings: Settings, host: str) -> HostNames | None:
    """The host names that requests may use if the server listens on `host`; None allows any.

    Beyond loopback the monitor cannot find out its own names: DNS and services define them.
    """
    if is_loopback(host) or settings.allowed_hosts:
        people_use = urlsplit(settings.external_url or "").hostname
        names = (socket.gethostname(), *settings.allowed_hosts, people_use or "localhost")
        return HostNames(names)
    return None


def write_file_sd(settings: Settings, port: int, gate: Gate) -> Callable[[], None]:
    """Write the service discovery file, if configured; return its remover. Raises UsageError."""
    if settings.file_sd is None:
        return lambda: None
    address = target(settings.listen_address[0], port, socket.gethostname())
    scheme = {"__scheme__": "https"} if gate.encrypts else {}
    remove = write_target(settings.file_sd, address, settings.external_labels | scheme)
    log.info("%s contains the target %s for Prometheus", settings.file_sd, address)
    return remove


def url_of(host: str, port: int, *, encrypts: bool) -> str:
    """The URL for a browser on this machine."""
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if encrypts else 'http'}://{shown}:{port}"
