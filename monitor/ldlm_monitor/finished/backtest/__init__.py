"""Backtests: finished logs replayed, and their alerts compared with the events of each log."""
