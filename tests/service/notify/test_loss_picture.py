"""The picture of the loss around an incident: a PNG for any curve, drawn where that is possible."""

import io
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldlm_monitor.base.snapshot import CurveView
from ldlm_monitor.service.notify.loss_picture import loss_picture, picture_of

pytest.importorskip("matplotlib", reason="the extra `plots` is not installed")

from matplotlib.image import imread


def curve(means: Sequence[float], nonfinite: Sequence[int] | None = None) -> CurveView:
    count = len(means)
    return CurveView(
        steps=range(10, 10 + count),
        times=[1000.0 + index for index in range(count)],
        lows=[mean - 0.1 for mean in means],
        highs=[mean + 0.1 for mean in means],
        means=means,
        nonfinite=nonfinite or [0] * count,
        lines=range(count),
        offsets=range(count),
        origins=[0] * count,
        files=("a.log",),
    )


def reds(png: bytes) -> int:
    """Pixels that are red: the incident, and what was not finite."""
    picture = imread(io.BytesIO(png))
    return int(((picture[..., 0] > 0.9) & (picture[..., 1] < 0.2) & (picture[..., 2] < 0.2)).sum())


def test_the_incident_and_what_was_not_finite_are_marked():
    means = [3.0 - 0.01 * step for step in range(100)]
    healthy = loss_picture(curve(means), 1090.0, "r1")
    broken = loss_picture(curve([*means[:90], *[math.nan] * 10], [0] * 90 + [1] * 10), 1090.0, "r1")
    assert reds(healthy) > 100
    assert reds(broken) > reds(healthy)


def test_the_incident_stands_at_its_step_whenever_that_was_read():
    """A log of a hundred steps may be read in one go, long after the incident began."""
    means = [3.0 - 0.01 * step for step in range(100)]
    early = loss_picture(curve(means), 1099.0, "r1", step=30)
    assert early == loss_picture(curve(means), 1020.0, "r1")
    assert early != loss_picture(curve(means), 1099.0, "r1")
    beyond = loss_picture(curve(means), 1099.0, "r1", step=5000)
    assert beyond == loss_picture(curve(means), 1099.0, "r1"), "no step of this curve"


@given(
    means=st.lists(st.floats(), min_size=3, max_size=40),
    at=st.floats(allow_nan=False, allow_infinity=False),
    run=st.text(max_size=200) | st.just("$\\frac{<!channel> 日本 $"),
    step=st.none() | st.integers(),
)
def test_any_curve_and_any_name_give_a_picture(means, at, run, step):
    assert loss_picture(curve(means), at, run, step=step).startswith(b"\x89PNG")


def test_a_run_without_a_curve_has_no_picture(make_notification):
    from ldlm_monitor.service.notify.message import Message

    message = Message(
        step="first", group=1, identity="1", news=(), alerts=(make_notification(),),
        opened_at=0.0,
    )  # fmt: skip
    assert picture_of(dict)(message) is None
    assert picture_of(lambda: {"r1": {"loss": curve([1.0])}})(message) is None
    drawn = picture_of(lambda: {"r1": {"loss": curve([1.0, 2.0, 3.0])}})(message)
    assert drawn is not None
