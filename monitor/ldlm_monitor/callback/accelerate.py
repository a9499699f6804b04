"""`ldlm_callback.accelerate` under its name within ldlm-monitor."""

import sys

from ldlm_callback import accelerate
from ldlm_callback.accelerate import HealthTracker

__all__ = ["HealthTracker"]  # for who reads types; an import gives the module itself

sys.modules[__name__] = accelerate
