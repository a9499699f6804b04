"""Every setting, parsed once: flag beats environment (`LDLM_*`) beats `ldlm-monitor.toml`."""

from ldlm_monitor.config.load import load
from ldlm_monitor.config.settings import Attach, FailOn, Settings

__all__ = ["Attach", "FailOn", "Settings", "load"]
