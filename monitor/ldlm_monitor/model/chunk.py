"""Where docs/api.md once imported `Chunk` from: programs that do go on."""

from ldlm_monitor.base.chunk import Chunk

__all__ = ["Chunk"]
