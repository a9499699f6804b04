"""A server of the monitor, and a screen, for every test here."""

from tests.screen.conftest import read_all, shown, trainings
from tests.service.serve.served import make_snapshot, running

__all__ = ["make_snapshot", "read_all", "running", "shown", "trainings"]
