"""A thread that tells somebody again and again, until it is asked to end."""

from __future__ import annotations

import threading


class Stoppable(threading.Thread):
    """Whoever runs in it waits for `_stopping` between two attempts."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._stopping = threading.Event()

    def stop(self, timeout: float) -> bool:
        """End, within `timeout` seconds; False if the server did not answer in time."""
        self._stopping.set()
        self.join(timeout)
        return not self.is_alive()
