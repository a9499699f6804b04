"""What the tests of parse get, also those that take the whole."""

from tests.logs.parse.conftest import corpus, parse

__all__ = ["corpus", "parse"]
