"""`ldlm_callback` under the name that it has within ldlm-monitor.

The adapters (`huggingface`, `lightning`, `accelerate`, `keras`) are modules of this package too:
each is the very module of `ldlm_callback`, so that a process has one of each, whatever name it
imports.
"""

from ldlm_callback import HealthCallback

__all__ = ["HealthCallback"]
