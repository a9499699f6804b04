"""The HTTP API as an ASGI application: access, routes and their handlers."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ldlm_monitor.base.errors import UsageError
from ldlm_monitor.base.queries import Source
from ldlm_monitor.service.serve import live_page, openapi, pages, stream
from ldlm_monitor.service.serve.access import (
    NOT_FROM_OTHER_SITES,
    NOT_OUR_NAME,
    has_foreign_origin,
    is_of_another_site,
)
from ldlm_monitor.service.serve.metrics import exposition
from ldlm_monitor.service.serve.prometheus import PREFIX, PrometheusApi
from ldlm_monitor.service.serve.site import Silencing, Site

SILENCES, ACKS = "/api/v1/silences", "/api/v1/acks"  # paths of commands
MAX_BLOCKING = 8
"""Handlers that may read files or write databases at once, of the 40 threads that starlette has: a
choice. A file system that hangs blocks only these threads; the others answer `/metrics`."""
_GZIP_LEVEL = 1
"""Compression blocks the event loop. Measured with a megabyte of metrics: 21 ms at level 1, and
190 ms at level 9, which saves a sixth of the bytes."""
MAX_WORDS = 200  # characters of a filter: a choice, more than a person types
_COMMAND_RULE = "a command needs a bearer token unless the monitor listens on loopback alone"

Handler: TypeAlias = Callable[[Request], Response]
Query: TypeAlias = Callable[[Source, Mapping[str, str]], dict[str, Any]]


class _Guard:
    """ASGI middleware: 421 for a wrong host name, 403 for pages of others, 401 for credentials."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            app = await self._refusal(Request(scope)) or app
        await app(scope, receive, send)

    async def _refusal(self, request: Request) -> ASGIApp | None:
        gate, names = self._site.gate, self._site.names
        access = gate.access()
        is_open = not (gate.encrypts or access.is_required)
        if is_open and names is not None and not names.accepts(request.headers.get("host")):
            return _line(NOT_OUR_NAME, 421)
        path = request.scope["path"]
        # MCP asks servers to look at `Origin`: older browsers send it without Fetch metadata.
        if is_of_another_site(request.headers, request.method, path) or (
            path == "/mcp" and has_foreign_origin(request.headers)
        ):
            return _line(NOT_FROM_OTHER_SITES, 403)
        request.state.grant = await access.grant(request.headers.get("authorization", ""))
        if request.state.grant is None:
            headers = {"WWW-Authenticate": access.challenge}
            return PlainTextResponse("a valid password or token is needed\n", 401, headers)
        return None


class Routes:
    """The handlers of a site. starlette runs each in a thread, unless it is a coroutine."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._redact = pages.cached(site.redact)
        self._rows = {up: live_page.RowsOfPage(self._redact, up) for up in ("", "../")}
        self._blocking_slots = asyncio.Semaphore(MAX_BLOCKING)
        self._routes: list[Route] = []
        self._streams = 0

    def app(self) -> Starlette:
        """The ASGI application. It expects each request's body in `request.state.body`."""
        routes = [
            Route("/", self._live_page),
            Route("/runs/{run:path}", self._blocking(self._run_page)),
            Route("/metrics", self._metrics),
            Route("/-/healthy", self._healthy),
            Route("/-/ready", self._ready),
            Route("/-/reload", self._blocking(self._reload), methods=["POST", "PUT"]),
            *(Route(f"/api/v1/{name}", partial(self._resource, name)) for name in pages.RESOURCES),
            Route("/api/v1/stream", self._stream),
            Route("/api/v1/openapi.json", self._openapi),
        ]
        if (source := self._site.source) is not None:
            log = partial(pages.log, self._redact)
            for name, query in (("series", pages.series), ("logs", log)):
                endpoint = self._blocking(partial(self._answer, query, source))
                routes.append(Route(f"/api/v1/{name}", endpoint))
        if self._site.ask is not None:
            routes += PrometheusApi(
                self._site.ask, self._redact, experimental=self._site.experimental
            ).routes()
            routes += [
                Route(f"{PREFIX}/", partial(self._live_page, up="../")),
                Route(f"{PREFIX}/-/healthy", self._healthy),
                Route(f"{PREFIX}/-/ready", self._ready),
            ]
        if self._site.silencing is not None:
            routes += self._silence_routes(self._site.silencing)
        self._routes = routes
        mounted = self._site.mounted
        others = [] if mounted is None else [Route("/mcp", mounted, methods=["POST"])]
        app = Starlette(
            routes=[*routes, *others],
            middleware=[
                Middleware(_Guard, site=self._site),
                Middleware(GZipMiddleware, compresslevel=_GZIP_LEVEL),
            ],
            exception_handlers={HTTPException: self._refused, Exception: self._failed},
        )
        app.router.redirect_slashes = False
        return app

    def _blocking(self, handler: Handler) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            async with self._blocking_slots:
                return await run_in_threadpool(handler, request)

        return endpoint

    async def _refused(self, _: Request, problem: Exception) -> Response:
        assert isinstance(problem, HTTPException)
        detail, headers = problem.detail, dict(problem.headers or {})
        if problem.status_code == 404 and detail == "Not Found":
            detail = "no such page; / lists the pages"
        if "Allow" in headers:
            headers["Allow"] = ", ".join(sorted(headers["Allow"].split(", ")))
            detail = f"only {headers['Allow']}"
        return PlainTextResponse(f"{self._redact(detail)}\n", problem.status_code, headers)

    async def _failed(self, _: Request, problem: Exception) -> Response:
        # hypercorn logs the exception with its traceback after this answer.
        return _line("internal error of the monitor; its log has the traceback", 500)

    def _live_page(self, request: Request, up: str = "") -> Response:
        words = request.query_params.get("q", "")[:MAX_WORDS]
        snapshot = self._site.snapshot()
        page = live_page.live_page(
            snapshot, self._redact, time.time(), words=words, up=up, made=self._rows[up]
        )
        headers = {"Content-Security-Policy": f"{live_page.policy()}; frame-ancestors 'none'"}
        return Response(page, headers=headers, media_type="text/html")

    def _run_page(self, request: Request) -> Response:
        page = self._site.page(self._site.snapshot(), request.path_params["run"])
        if page is None:
            raise HTTPException(404, "no run of this name; / lists the runs")
        headers = {"Content-Security-Policy": f"{page[1]}; frame-ancestors 'none'"}
        return Response(page[0], headers=headers, media_type="text/html")

    def _metrics(self, request: Request) -> Response:
        accept = request.headers.get("accept", "")
        content_type, body = exposition(self._site.families(), accept, self._redact)
        return Response(body, headers={"Content-Type": content_type})

    async def _healthy(self, _: Request) -> Response:
        return _line("healthy")

    def _ready(self, _: Request) -> Response:
        if self._site.ready():
            return _line("ready")
        unjudged = self._site.snapshot().unjudged()
        return _line(f"not ready: {unjudged}" if unjudged else "not ready", 503)

    def _resource(self, name: str, request: Request) -> Response:
        snapshot = self._site.snapshot()
        headers = {"ETag": pages.tag(snapshot, name)}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        body = pages.resource(snapshot, name, self._redact)
        return Response(body, headers=headers, media_type="application/json")

    async def _stream(self, request: Request) -> Response:
        last_id, since = request.headers.get("last-event-id"), pages.since(request.query_params)
        if self._streams >= stream.MAX_STREAMS:
            raise HTTPException(503, f"{stream.MAX_STREAMS} clients read the stream already")
        request.state.renews_deadline = True
        found = stream.events(self._site.snapshot, self._redact, last_id, since)
        return StreamingResponse(self._counted(found), media_type="text/event-stream")

    async def _counted(self, found: AsyncIterator[str]) -> AsyncIterator[str]:
        self._streams += 1
        try:
            async for each in found:
                yield each
        finally:
            self._streams -= 1

    def _openapi(self, _: Request) -> Response:
        silencing = self._site.silencing
        return self._json(openapi.document(self._routes, silencing.bodies if silencing else {}))

    def _json(self, document: Mapping[str, object], status: int = 200) -> Response:
        body = pages.encoded(document, self._redact)
        return Response(body, status, media_type="application/json")

    def _answer(self, query: Query, source: Source, request: Request) -> Response:
        return self._json(query(source, request.query_params))

    def _silence_routes(self, silencing: Silencing) -> list[Route]:
        def silences(request: Request) -> Response:
            if request.method != "POST":
                return self._json(silencing.listing(time.time()))
            self._check_command(request)
            return self._stored(silencing.take_silence, request.state.body)

        def acks(request: Request) -> Response:
            self._check_command(request)
            alerts = self._site.snapshot().alerts
            return self._stored(silencing.take_ack, request.state.body, alerts)

        def expire(request: Request) -> Response:
            self._check_command(request)
            number = request.path_params["number"]
            if not silencing.expire(number, time.time()):
                raise HTTPException(404, f"no silence or ack has this id; {SILENCES} lists them")
            return self._json({"silenceID": number})

        return [
            Route(SILENCES, self._blocking(silences), methods=["GET", "POST"]),
            Route(ACKS, self._blocking(acks), methods=["POST"]),
            Route(f"{SILENCES}/{{number}}", self._blocking(expire), methods=["DELETE"]),
        ]

    def _stored(self, store: Callable[..., str], *arguments: object) -> Response:
        try:
            return self._json({"silenceID": store(*arguments, time.time())}, 201)
        except UsageError as problem:
            raise HTTPException(400, str(problem)) from None
        except LookupError as problem:
            raise HTTPException(404, f"{problem}; /api/v1/alerts lists them") from None

    def _reload(self, request: Request) -> Response:
        self._check_command(request)
        if problem := self._site.reload():
            raise HTTPException(500, problem)
        return _line("reloaded")

    def _check_command(self, request: Request) -> None:
        # Browsers send `Origin` with every POST and DELETE. No web page may send commands with
        # the rights of the person who has opened it.
        if "origin" in request.headers:
            raise HTTPException(403, "commands are not accepted from web pages")
        if not self._site.takes_commands and request.state.grant != "token":
            raise HTTPException(403, _COMMAND_RULE)


def _line(text: str, status: int = 200) -> Response:
    return PlainTextResponse(f"{text}\n", status)
