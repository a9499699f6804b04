"""What the tests of callback get, also those that take the whole."""

from tests.callback.conftest import health, monitor_reads, reported, train, until

__all__ = ["health", "monitor_reads", "reported", "train", "until"]
