"""`ldlm_callback.keras` under its name within ldlm-monitor."""

import sys

from ldlm_callback import keras
from ldlm_callback.keras import HealthKerasCallback

__all__ = ["HealthKerasCallback"]  # for who reads types; an import gives the module itself

sys.modules[__name__] = keras
