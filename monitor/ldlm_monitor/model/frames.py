"""Files of frames instead of lines: which form one has, and where each frame ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol, TypeAlias

from ldlm_monitor.model.tfrecord import HEADER_BYTES as _TFRECORD_BYTES
from ldlm_monitor.model.tfrecord import begins_tfrecord
from ldlm_monitor.model.tfrecord import frames as _tfrecord_frames
from ldlm_monitor.model.wandb_log import begins_wandb_log, transactions

Form: TypeAlias = Literal["", "tfrecord", "wandb"]
"""How a file is cut; "": in lines."""

HEAD_BYTES = _TFRECORD_BYTES
"""Bytes that suffice to recognise the form."""


class Frame(Protocol):
    """A part of a buffer: a frame, or what stands between two and can't be read."""

    @property
    def start(self) -> int:
        """The index of its first byte."""
        ...

    @property
    def end(self) -> int:
        """The index behind its last byte."""
        ...

    @property
    def found(self) -> bool:
        """Whether it is a frame."""
        ...

    def payload(self, data: bytes) -> bytes | None:
        """What it holds; None where it was damaged."""
        ...


def form_of(head: bytes) -> Form | None:
    """The form of a file that begins with `head`; None: too little is there to say."""
    tfrecord, wandb = begins_tfrecord(head), begins_wandb_log(head)
    if tfrecord:
        return "tfrecord"
    if wandb:
        return "wandb"
    return None if tfrecord is None or wandb is None else ""


def frames(form: Form, data: bytes, offset: int, *, ended: bool = True) -> Iterator[Frame]:
    """The frames of a buffer that are whole, and what stands between them.

    `offset`: where the buffer begins in its file. `ended`: nothing follows, so that a
    broken part at the end may be given as well.
    """
    if form == "wandb":
        return transactions(data, offset)
    return iter(_tfrecord_frames(data, ended=ended))


def count_frames(form: Form, data: bytes, offset: int) -> int:
    """How many frames a buffer holds."""
    return sum(frame.found for frame in frames(form, data, offset))
