"""Tells Prometheus where this monitor is scraped: a file of its file-based service discovery.

The form is that of `file_sd_configs`
(https://prometheus.io/docs/prometheus/latest/configuration/configuration/#file_sd_config): a list
of groups of targets with labels. Prometheus reads the file whenever it changes, so it is replaced
whole, and taken away at the end.
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
    """The file while the monitor serves; `remove` takes it away unless another wrote it since.

    Its name ends in .json, for the others of its kind beside it. `labels` are put on every
    series of this monitor by Prometheus. Raises UsageError where it cannot be written.
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
                remedy="make its folder, and let the monitor write there",
            ) from error

    def _write(self) -> None:
        # A name that no glob of `*.json` finds while it is half written.
        half = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            half.write_text(self._text, encoding="utf-8")
            half.chmod(READABLE_BY_ALL)
            half.replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                half.unlink()
            raise

    def remove(self) -> None:
        """Prometheus forgets this monitor; a file that is gone already is no fault."""
        with contextlib.suppress(OSError):
            if self._path.read_text(encoding="utf-8") == self._text:
                self._path.unlink()
