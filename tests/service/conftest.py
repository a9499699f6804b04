"""Command lines and certificates, for every test of the service."""

from tests.service.certificates import certificates
from tests.service.command_line import ask

__all__ = ["ask", "certificates"]
