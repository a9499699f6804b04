"""Reading as it is without the compiled part."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ldlm_monitor.base.native import library
from ldlm_monitor.logs.parse.row_columns import shape_of

needs_native = pytest.mark.skipif(library() is None, reason="the compiled part is not there")


@contextmanager
def python_alone() -> Iterator[None]:
    """Within, LDLM_NATIVE is 0."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LDLM_NATIVE", "0")
        _forget()
        yield
    _forget()


def _forget() -> None:
    library.cache_clear()
    shape_of.cache_clear()
