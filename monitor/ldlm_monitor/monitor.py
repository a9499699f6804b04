"""The monitor's core, under its public name (contract, section 7)."""

from ldlm_monitor.judge.core.monitor import Monitor

__all__ = ["Monitor"]
