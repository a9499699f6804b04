"""The monitor's core and the chunks that it is fed, under their public names."""

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.judge.core.monitor import Monitor

__all__ = ["Chunk", "Monitor"]
