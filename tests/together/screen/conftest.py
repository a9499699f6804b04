"""What the tests of screen get, also those that take the whole."""

from tests.screen.conftest import read_all, shown, trainings

__all__ = ["read_all", "shown", "trainings"]
