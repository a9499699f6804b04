"""What several rooms share with the houses: command lines, certificates, a silent file server."""

from tests.logs.silent_server import server
from tests.service.certificates import certificates
from tests.service.command_line import ask

__all__ = ["ask", "certificates", "server"]
