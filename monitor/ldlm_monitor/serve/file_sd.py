"""A file of Prometheus' file-based service discovery, with the address of this monitor.

The format is that of `file_sd_configs`
(https://prometheus.io/docs/prometheus/latest/configuration/configuration/#file_sd_config): a list
of groups of targets with labels. Prometheus reads the file whenever it changes, so it is replaced
atomically, and removed at the end.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
from collections.abc import Mapping
from pathlib import Path

from ldlm_monitor.model.errors import UsageError

READABLE_BY_ALL = 0o644
"""Prometheus is another user; the file holds no secret."""


def target(host: str, port: int, node: str) -> str:
    """HOST:PORT for others: `node` where `host` stands for every address of this machine."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"{host or node}:{port}"
    if address.is_unspecified:
        return f"{node}:{port}"
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


class FileSd:
    """The file while the monitor serves; Prometheus adds `labels` to every series.

    Raises UsageError if it cannot be written.
    """

    def __init__(self, path: Path, address: str, labels: Mapping[str, str]) -> None:
        self._path = path
        group = {"targets": [address], "labels": dict(sorted(labels.items()))}
        self._text = json.dumps([group], indent=2) + "\n"
        try:
            self._write()
        except OSError as error:
            raise UsageError(
                f"cannot be written ({error.strerror})",
                where=f"file_sd: {path}",
                remedy="make its folder, writable for the monitor's user",
            ) from error

    def _write(self) -> None:
        # Prometheus reads `*.json`: this name does not match while it is half written.
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            partial.write_text(self._text, encoding="utf-8")
            partial.chmod(READABLE_BY_ALL)
            partial.replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise

    def remove(self) -> None:
        """Remove the file, unless another monitor has written it since or it is gone already."""
        with contextlib.suppress(OSError):
            if self._path.read_text(encoding="utf-8") == self._text:
                self._path.unlink()
