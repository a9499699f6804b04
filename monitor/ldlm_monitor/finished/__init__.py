"""Questions about finished runs: comparison, benchmark, backtest, charts."""
