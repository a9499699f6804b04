"""A file server that stops answering, for whoever reads files."""

from tests.logs.silent_server import server

__all__ = ["server"]
