"""What several rooms share with the houses: command lines and certificates."""

from tests.service.certificates import certificates
from tests.service.command_line import ask

__all__ = ["ask", "certificates"]
