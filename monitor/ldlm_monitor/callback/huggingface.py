"""`ldlm_callback.huggingface` under its name within ldlm-monitor."""

import sys

from ldlm_callback import huggingface
from ldlm_callback.huggingface import HealthTrainerCallback

__all__ = ["HealthTrainerCallback"]  # for who reads types; an import gives the module itself

sys.modules[__name__] = huggingface
