"""A file server that stops answering, for the daemon that reads its files."""

from tests.logs.silent_server import server

__all__ = ["server"]
