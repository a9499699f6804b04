"""Where a daemon is reached: the address it serves on, its URL, and how Prometheus finds it."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable

from ldlm_monitor.config import Settings
from ldlm_monitor.config.loopback import is_loopback
from ldlm_monitor.model.errors import UsageError
from ldlm_monitor.serve import Gate, Server
from ldlm_monitor.serve.file_sd import FileSd, target
from ldlm_monitor.serve.host_names import HostNames

PORTS_TRIED = 20

log = logging.getLogger(__name__)


def listen(settings: Settings, gate: Gate, opened: Callable[[str, int], Server]) -> Server:
    """A server on the address that was asked for, or on the first free port after the default.

    `opened` makes it for a host and a port. Raises `UsageError` where no port is to be had.
    """
    host, first = settings.listen_address
    tries = 1 if settings.listen_is_explicit else PORTS_TRIED
    for port in range(first, first + tries):
        try:
            server = opened(host, port)
        except OSError as error:
            taken = error
            if error.errno != errno.EADDRINUSE:
                break
            continue
        if port != first:
            log.warning("port %d is taken: listening on %s:%d", first, host, port)
        server.start()
        if not is_loopback(host) and not gate.access().asks:
            log.warning(
                "whoever reaches %s:%d may read what is told of the logs: see --web-config",
                host,
                port,
            )
        return server
    raise UsageError(
        f"cannot listen on {host}:{first} ({taken.strerror})",
        where="listen",
        remedy="choose another address with --listen HOST:PORT",
    ) from taken


def names_for(settings: Settings, host: str) -> HostNames | None:
    """By which names it may be asked where it listens on `host`; None: any.

    Beyond loopback its names are known to those alone who gave them to it.
    """
    if is_loopback(host) or settings.allowed_hosts:
        return HostNames((socket.gethostname(), *settings.allowed_hosts))
    return None


def let_prometheus_find(settings: Settings, port: int, gate: Gate) -> Callable[[], None]:
    """Write the file of its service discovery, where one is wanted; returns how to take it away."""
    if settings.file_sd is None:
        return lambda: None
    address = target(settings.listen_address[0], port, socket.gethostname())
    scheme = {"__scheme__": "https"} if gate.encrypts else {}
    file = FileSd(settings.file_sd, address, settings.external_labels | scheme)
    log.info("Prometheus finds %s by %s", address, settings.file_sd)
    return file.remove


def url_of(host: str, port: int, gate: Gate) -> str:
    """Where a browser on this machine finds it."""
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if gate.encrypts else 'http'}://{shown}:{port}"
