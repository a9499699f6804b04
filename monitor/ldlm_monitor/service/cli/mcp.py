"""`ldlm-monitor mcp`: a read-only server for agents, over finished logs or a running monitor."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.service.cli.flags import JudgeFlags, replay_of, settings, settings_for_inputs

if TYPE_CHECKING:
    from ldlm_monitor.base.snapshot import Snapshot
    from ldlm_monitor.service.config import Settings


def mcp(*files: str, url: str | None = None, flags: JudgeFlags | None = None) -> int:
    """Serves agents by the Model Context Protocol on standard input and output; read-only.

    Args:
        files: Finished logs, folders or globs.
        url: A running monitor instead, such as http://127.0.0.1:9847.
    """
    if url is None:
        return _serve_logs(settings_for_inputs(flags, files, once=True))
    if files:
        raise UsageError("goes not with logs", where="--url", remedy="name one or the other")
    from ldlm_monitor.screen.remote import RemoteSource
    from ldlm_monitor.service.cli.attach import authorization, tls
    from ldlm_monitor.service.mcp.agent_answers import Tools
    from ldlm_monitor.service.mcp.mcp_server import server_of

    found = settings(flags).attach
    source = RemoteSource(url, authorization=authorization(found), tls=tls(found))
    server = server_of(Tools(source, source.query))
    source.start()
    try:
        server.run("stdio")
    finally:
        source.stop()
    return 0


def _serve_logs(found: Settings) -> int:
    from ldlm_monitor.base.text.sanitize import redact
    from ldlm_monitor.service.daemon.local_source import LocalSource
    from ldlm_monitor.service.mcp.agent_answers import Tools
    from ldlm_monitor.service.mcp.mcp_server import server_of
    from ldlm_monitor.service.notify.silences import Silences
    from ldlm_monitor.service.serve.prometheus import PrometheusApi

    if "-" in found.files:
        raise UsageError("is the agent's", where="standard input", remedy="name files")
    played = replay_of(found)  # a mistake is said at once; the first question judges the logs

    @cache
    def snapshot() -> Snapshot:
        played.monitor.engine.retain(float("inf"))
        return played.end()

    def call(read: Any) -> Any:
        snapshot()
        return read(played.monitor)

    prometheus = PrometheusApi(call, redact, experimental=found.promql_experimental)
    with tempfile.TemporaryDirectory(prefix="ldlm-monitor-") as folder:
        silences = Silences(Path(folder) / "silences.sqlite")
        try:
            source = LocalSource(snapshot, silences, found.files[0])
            server_of(Tools(source, prometheus.query)).run("stdio")
        finally:
            silences.close()
    return 0
