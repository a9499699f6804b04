"""A file server that stops answering, and the whole daemon, for the tests of the daemon."""

from tests.logs.silent_server import server
from tests.service.daemon.running import run

__all__ = ["run", "server"]
