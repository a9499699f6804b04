"""Backtests: finished logs replayed, and their alerts held against what is known of each log."""
