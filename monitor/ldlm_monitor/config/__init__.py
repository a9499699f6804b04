"""Every setting, parsed once: flag beats environment (`LDLM_*`) beats `ldlm-monitor.toml`."""

from ldlm_monitor.config.load import load
from ldlm_monitor.config.receivers import Attach, Slack
from ldlm_monitor.config.settings import FailOn, Settings, Stall

__all__ = ["Attach", "FailOn", "Settings", "Slack", "Stall", "load"]
