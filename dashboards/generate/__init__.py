"""Writes the Grafana boards beside this folder: `python -m generate` in `dashboards/`."""
