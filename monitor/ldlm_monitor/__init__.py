"""ldlm-monitor: the training-health monitor for multi-GPU training."""

__version__ = "0.1.0"
