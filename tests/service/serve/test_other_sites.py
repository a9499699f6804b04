"""What a web page of another site can make the browser ask: by Fetch metadata, and by `Origin`."""

import http.client
from collections.abc import Callable, Iterator

import pytest
from starlette.responses import PlainTextResponse

from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.service.serve import Server, Site

QUERY = "/prometheus/api/v1/query?query=1"
IMAGE = {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
LINK = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
Asked = Callable[..., int]


class Mounted:
    """In place of the server for agents, which needs an extra."""

    def run(self) -> "Mounted":
        return self

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def __call__(self, scope, receive, send) -> None:
        await PlainTextResponse("answered")(scope, receive, send)


@pytest.fixture
def reloads() -> list[int]:
    return []


@pytest.fixture
def status(make_snapshot: Callable[..., Snapshot], reloads: list[int]) -> Iterator[Asked]:
    monitor = Monitor()
    site = Site(
        snapshot=make_snapshot, ready=lambda: True, takes_commands=True, mounted=Mounted(),
        ask=lambda question: question(monitor), page=lambda *_: ("", ""),
        reload=lambda: reloads.append(1) or "",
    )  # fmt: skip
    server = Server("127.0.0.1", 0, site)
    server.start()

    def ask(path: str, method: str = "GET", **headers: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        try:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=given)
            return connection.getresponse().status
        finally:
            connection.close()

    ask.port = server.port  # type: ignore[attr-defined]
    yield ask
    server.stop()


@pytest.mark.parametrize("site", ["cross-site", "same-site", "a word to come"])
@pytest.mark.parametrize(
    "path", [QUERY, "/prometheus/api/v1/series?match[]=up", "/api/v1/runs", "/metrics", "/"]
)
def test_what_a_page_of_another_site_embeds_is_refused(status: Asked, path: str, site: str) -> None:
    assert status(path, Sec_Fetch_Site=site, **IMAGE) == 403
    assert status(path, Sec_Fetch_Site=site) == 403
    frame = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    assert status(path, Sec_Fetch_Site=site, **frame) == 403


@pytest.mark.parametrize("path", ["/", "/runs/r1", "/metrics", "/-/healthy", "/-/ready"])
def test_a_person_may_follow_a_link_to_a_page(status: Asked, path: str) -> None:
    """As from Slack, or from a board."""
    assert status(path, Sec_Fetch_Site="cross-site", **LINK) == 200


@pytest.mark.parametrize("path", [QUERY, "/api/v1/runs", "/-/reload", "/mcp"])
def test_a_link_leads_to_no_query_and_no_command(
    status: Asked, path: str, reloads: list[int]
) -> None:
    for method in ("GET", "POST"):
        assert status(path, method, Sec_Fetch_Site="cross-site", **LINK) == 403
    assert not reloads


def test_a_command_of_another_site_is_refused_without_an_origin(
    status: Asked, reloads: list[int]
) -> None:
    assert status("/-/reload", "POST", Sec_Fetch_Site="cross-site") == 403
    assert not reloads
    assert status("/-/reload", "POST") == 200
    assert reloads


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_a_page_of_the_same_origin_and_an_address_that_was_typed_are_answered(
    status: Asked, site: str
) -> None:
    """A proxy such as Grafana's passes on what the browser said of Grafana's own page."""
    for path in (QUERY, "/api/v1/runs", "/metrics", "/"):
        assert status(path, Sec_Fetch_Site=site) == 200


def test_a_tool_says_nothing_of_a_site(status: Asked) -> None:
    assert status(QUERY) == 200
    assert status("/mcp", "POST") == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "http://127.0.0.1:1"])
def test_agents_are_no_pages_of_another_origin(status: Asked, origin: str) -> None:
    assert status("/mcp", "POST", Origin=origin) == 403
    assert status("/mcp", "POST", Origin=f"http://127.0.0.1:{status.port}") == 200
