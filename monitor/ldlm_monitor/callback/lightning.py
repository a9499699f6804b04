"""`ldlm_callback.lightning` under its name within ldlm-monitor."""

import sys

from ldlm_callback import lightning
from ldlm_callback.lightning import HealthLightningCallback

__all__ = ["HealthLightningCallback"]  # for who reads types; an import gives the module itself

sys.modules[__name__] = lightning
