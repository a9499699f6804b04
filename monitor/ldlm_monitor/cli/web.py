"""`--web`: the screen in a browser. Each window is a process that is attached to the daemon."""

from __future__ import annotations

import asyncio
import logging
import shlex
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ldlm_monitor.daemon.listener import bound, names_for, url_of
from ldlm_monitor.model.errors import UsageError
from ldlm_monitor.serve.access import NOT_OUR_NAME, HostNames
from ldlm_monitor.text.addresses import address, is_loopback

try:
    from aiohttp import web
    from textual_serve.server import Server
except ImportError as missing:
    raise UsageError(
        f"needs {missing.name}, which is not installed",
        where="--web",
        remedy="pip install 'ldlm-monitor[web]'",
    ) from missing

if TYPE_CHECKING:
    from ldlm_monitor.config import Settings

LOOK_SECONDS = 0.2
"""Seconds between two checks whether the daemon has ended. A choice: fewer delay the end."""
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self' ws: wss:; img-src 'self' data:; frame-ancestors 'none'"
)
"""Content-Security-Policy: nothing is loaded from other hosts."""
_PAGE = Path(__file__).parent / "browser"
"""Our page in place of textual-serve's, which fetches a font, has no title and takes no keys."""
_CLOSE_SECONDS = 1.0  # for windows to close. A choice: longer delays the end, shorter cuts them

log = logging.getLogger(__name__)


class _Screens(Server):
    """textual-serve's server, closed to the pages of other sites.

    A request's `Origin` names the page that opens a WebSocket, its `Host` the name that led here.
    """

    def __init__(self, command: str, title: str, names: HostNames | None) -> None:
        super().__init__(command, title=title, templates_path=_PAGE)
        self._names = names

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.middlewares.append(self._check)
        return app

    async def on_startup(self, app: web.Application) -> None:
        """Prints nothing: the daemon logs the address."""

    @web.middleware
    async def _check(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if self._names is not None and not self._names.accepts(request.host):
            raise web.HTTPForbidden(text=NOT_OUR_NAME)
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            raise web.HTTPForbidden(text="Pages of other sites may not open this one.")
        # The page opens its WebSocket under the request's own host name: it may be a tunnel's.
        self.public_url = f"{request.scheme}://{request.host}"
        response = await handler(request)
        if not response.prepared:
            response.headers["Content-Security-Policy"] = _POLICY
        return response


async def show(found: Settings, name: str, url: str, ended: Callable[[], bool]) -> None:
    """Serves the screen of the daemon at `url` until `ended` returns True; `name`: its inputs.

    Raises `UsageError` if the address cannot be bound.
    """
    host, port = address(found.web_listen)
    command = shlex.join([sys.executable, "-m", "ldlm_monitor", "attach", url])
    server = _Screens(command, f"ldlm-monitor {name}", names_for(found, host))
    runner = web.AppRunner(await server._make_app(), access_log=None)
    await runner.setup()
    try:
        listening = bound(
            (host, port), "--web-listen", _bind, is_explicit="web_listen" in found.model_fields_set
        )
        await web.SockSite(runner, listening, shutdown_timeout=_CLOSE_SECONDS).start()
        shown = url_of(host, listening.getsockname()[1], encrypts=False)
        log.info("the screen is at %s", shown)
        if not is_loopback(host):
            log.warning("everyone who reaches %s can read the logs and silence alerts", shown)
        while not ended():
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        await runner.cleanup()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)
