"""A rank's metrics over HTTP, if asked for (`serve=`): needs prometheus-client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

_GAUGES = {
    "loss": ("ldlm_train_loss", "Training loss, the last value reported."),
    "grad_norm": ("ldlm_train_grad_norm", "Global gradient norm before clipping."),
    "learning_rate": ("ldlm_train_learning_rate", "Learning rate."),
    "step": ("ldlm_train_step", "Step, as the best source counts it."),
    "step_seconds": ("ldlm_train_step_seconds", "Duration of a step."),
    "samples_per_second": (
        "ldlm_train_samples_per_second",
        "Samples a second, over all ranks.",
    ),
    "tokens_per_second": ("ldlm_train_tokens_per_second", "Tokens a second, over all ranks."),
    "memory_allocated_bytes": (
        "ldlm_train_memory_allocated_bytes",
        "Accelerator memory allocated.",
    ),
}
_OTHER = ("ldlm_train_metric", "Every other numeric key of the log.")
_OWN = frozenset({"type", "time", "batch", "epoch"})


class Exporter:
    """Serves what `latest` returns, the last row of this rank, under the monitor's names.

    `address` is a port, or HOST:PORT; without a host it is this machine alone that may
    ask. Raises `ImportError` without prometheus-client, `OSError` if the port is taken.
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
        """Families of the last row, made when they are asked for."""
        from prometheus_client.core import GaugeMetricFamily

        other = GaugeMetricFamily(*_OTHER, labels=("run", "rank", "name"))
        for name, value in self._latest().items():
            if name in _OWN or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if name in _GAUGES:
                family = GaugeMetricFamily(*_GAUGES[name], labels=("run", "rank"))
                family.add_metric(self._labels, value)
                yield family
            else:
                other.add_metric((*self._labels, name), value)
        if other.samples:
            yield other

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(1.0)
