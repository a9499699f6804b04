"""Backtests: finished logs replayed, and their alerts held against what is known of each log."""

from ldlm_monitor.analysis.backtest.play import backtest
from ldlm_monitor.analysis.backtest.score import LogScore, Overall, overall
from ldlm_monitor.analysis.backtest.show import score_json, score_text
from ldlm_monitor.analysis.backtest.truth import Truth, load_truth

__all__ = [
    "LogScore",
    "Overall",
    "Truth",
    "backtest",
    "load_truth",
    "overall",
    "score_json",
    "score_text",
]
