"""Serves the monitor's snapshot over HTTP to Prometheus, to scripts and to browsers."""

from ldlm_monitor.service.serve.server import Server
from ldlm_monitor.service.serve.site import RunPage, Site
from ldlm_monitor.service.serve.web_config import Gate

__all__ = ["Gate", "RunPage", "Server", "Site"]
