"""`--web`: the screen in a browser. Each window is a process that is attached to the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shlex
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.base.text.addresses import address, is_loopback
from ldlm_monitor.service.daemon.listener import bound, names_for, url_of
from ldlm_monitor.service.serve.access import NOT_OUR_NAME, HostNames

try:
    from aiohttp import web
    from textual_serve.app_service import AppService
    from textual_serve.server import Server, to_int
except ImportError as missing:
    raise UsageError(
        f"needs {missing.name}, which is not installed",
        where="--web",
        remedy="pip install 'ldlm-monitor[web]'",
    ) from missing

if TYPE_CHECKING:
    from ldlm_monitor.service.config import Settings

LOOK_SECONDS = 0.2
"""Seconds between two checks whether the daemon has ended. A choice: fewer delay the end."""
MAX_SCREENS = 4
"""Windows at once: a choice. Each is a process of some 35 MiB, which the training lacks; one person
has one or two."""
FREE_SECONDS = 5.0
"""Seconds that one more waits for another to close: a choice, so that reloading a page always
works, although its new socket may come before its old one is gone."""
HEARTBEAT_SECONDS = 8.0
"""Between two pings; a browser that vanished is noticed half as long after one at the latest. A
choice: less cuts windows that a tunnel holds up for a moment, more leaves processes behind."""
_FULL = f"{MAX_SCREENS} windows of the screen are open, the most at once: close one first."
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self' ws: wss:; img-src 'self' data:; frame-ancestors 'none'"
)
"""Content-Security-Policy: nothing is loaded from other hosts."""
_PAGE = Path(__file__).parent / "browser"
"""Our page in place of textual-serve's, which fetches a font, has no title and takes no keys."""
_CLOSE_SECONDS = 1.0  # for windows to close. A choice: longer delays the end, shorter cuts them

log = logging.getLogger(__name__)


class _Window(AppService):
    """The process of one window, which keeps nothing and ends with its socket."""

    async def stop(self) -> None:
        """End it at once: asked by textual-serve's way, it would first finish starting."""
        if self._process is None:
            return
        await self._download_manager.cancel_app_downloads(app_service_id=self.app_service_id)
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        if self._task is not None:
            self._task.cancel()  # it may wait for a browser that takes nothing any more
            await self._task
        await self._process.wait()


class _Screens(Server):
    """textual-serve's server, closed to the pages of other sites, and of few windows.

    A request's `Origin` names the page that opens a WebSocket, its `Host` the name that led here.
    """

    def __init__(self, command: str, title: str, names: HostNames | None) -> None:
        super().__init__(command, title=title, templates_path=_PAGE)
        self._names = names
        self._free = asyncio.Semaphore(MAX_SCREENS)

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Show the screen in the window that opened this socket, until it closes."""
        try:
            async with asyncio.timeout(FREE_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise web.HTTPServiceUnavailable(text=_FULL) from None
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT_SECONDS)

        async def close() -> None:
            await socket.close()

        window = _Window(
            self.command,
            write_bytes=socket.send_bytes,
            write_str=socket.send_str,
            close=close,
            download_manager=self.download_manager,
        )
        try:
            await socket.prepare(request)
            width, height = (request.query.get(name, "") for name in ("width", "height"))
            await window.start(to_int(width, 80), to_int(height, 24))
            await self._process_messages(socket, window)
        except Exception as error:  # noqa: BLE001 # a message that our page does not send
            log.warning("a window of the screen was closed (%s)", type(error).__name__)
        finally:
            await window.stop()
            self._free.release()
        return socket

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
    # Without `exec` each window would be a shell, too.
    command = "exec " + shlex.join([sys.executable, "-m", "ldlm_monitor", "attach", url])
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
