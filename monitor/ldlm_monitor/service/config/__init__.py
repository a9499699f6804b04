"""Every setting, parsed once: flag beats environment (`LDLM_*`) beats `ldlm-monitor.toml`."""

from ldlm_monitor.service.config.load import load
from ldlm_monitor.service.config.settings import Attach, FailOn, Settings

__all__ = ["Attach", "FailOn", "Settings", "load"]
