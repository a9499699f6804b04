"""A server of the monitor, for every test here."""

from tests.service.serve.served import make_snapshot, running

__all__ = ["make_snapshot", "running"]
