"""Servers that a rank runs on request: metrics over HTTP, and PyTorch's flight recorder."""

import importlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_TRAIN = (
    *("loss", "grad_norm", "learning_rate", "step", "step_seconds", "samples_per_second"),
    *("tokens_per_second", "memory_allocated_bytes", "memory_reserved_bytes"),
)
"""Values that have metrics in `ldlm_monitor/base/names.py`, named `ldlm_train_` and their name."""
_HELP = "The last value that this rank reported."  # of each metric
_OTHER = ("ldlm_train_metric", "Every other numeric key of the log.")  # as in names.py
_OWN = frozenset({"type", "time", "batch", "epoch"})  # keys of a row that are no metrics


class Exporter:
    """Serves this rank's last row, which `latest` returns, under the monitor's metric names.

    `address` is a port, or HOST:PORT; without a host it listens on loopback only. Raises
    `ImportError` without prometheus-client, `ValueError` for no port, `OSError` for one in use.
    """

    def __init__(
        self, address: int | str, run: str, rank: int, latest: Callable[[], Mapping[str, Any]]
    ) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        host, _, port = str(address).rpartition(":")
        self._labels = (run, str(rank))
        self._latest = latest
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        self._server, self._thread = start_http_server(
            int(port), addr=host or "127.0.0.1", registry=registry
        )
        self.port = self._server.server_port

    def collect(self) -> Iterator[Any]:
        """Metric families of the last row, made at each scrape."""
        from prometheus_client.core import GaugeMetricFamily

        other = GaugeMetricFamily(*_OTHER, labels=("run", "rank", "name"))
        for name, value in self._latest().items():
            if name in _OWN or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if name in _TRAIN:
                family = GaugeMetricFamily(f"ldlm_train_{name}", _HELP, labels=("run", "rank"))
                family.add_metric(self._labels, value)
                yield family
            else:
                other.add_metric((*self._labels, name), value)
        if other.samples:
            yield other

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(1.0)  # seconds: a slow client must not delay the end of the training


class FlightRecorder:
    """PyTorch's flight recorder on a Unix socket, at `path`.

    The recorder's server runs in C++ and answers while the GIL is held. It also serves a profiler,
    so only its owner may enter the socket's folder. Raises `ImportError` or `AttributeError` where
    PyTorch has no such server (the interface is private), `OSError` if no folder can be made.
    """

    def __init__(self) -> None:
        server = importlib.import_module("torch._C._distributed_c10d")._WorkerServer
        importlib.import_module("torch.distributed.debug._handlers")
        self._folder = tempfile.mkdtemp(prefix="ldlm-")
        self.path = os.path.join(self._folder, "recorder.sock")
        self._server = server(self.path)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)
