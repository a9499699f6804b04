"""What a server shows, and the protocols of what it asks."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from ldlm_monitor.base.names import Metric
from ldlm_monitor.base.points import Point
from ldlm_monitor.base.queries import Source
from ldlm_monitor.base.snapshot import AlertView, Snapshot
from ldlm_monitor.service.serve.access import HostNames
from ldlm_monitor.service.serve.prometheus import Asking
from ldlm_monitor.service.serve.web_config import Gate

RunPage: TypeAlias = Callable[[Snapshot, str], tuple[str, str] | None]
"""Makes the HTML page of a run and its content security policy, given the run's name as
`text.sanitize.run_path` writes it; None if there is no such run."""

Families: TypeAlias = Callable[[], Iterable[tuple[Metric, Iterable[Point]]]]


class Mounted(Protocol):
    """An ASGI application at /mcp, which serves while `run` is entered in the event loop."""

    def run(self) -> AbstractAsyncContextManager[None]:
        """Serve requests inside."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""


class Silencing(Protocol):
    """Stores silences and acknowledgements. Times are Unix seconds.

    `bodies`: the models of their JSON, by path below `/api/v1`.
    """

    bodies: Mapping[str, type[BaseModel]]

    def take_silence(self, body: bytes, now: float) -> str:
        """Store a silence, given as JSON; returns its id. Raises `UsageError`."""

    def take_ack(self, body: bytes, alerts: Iterable[AlertView], now: float) -> str:
        """As `take_silence`, for an acknowledgement. Raises LookupError if not of `alerts`."""

    def expire(self, number: str, now: float) -> bool:
        """Delete a silence or an acknowledgement by its id; False if none has this id."""

    def listing(self, now: float) -> Mapping[str, Any]:
        """All silences and acknowledgements as values that JSON has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The values that are served. Callables are called in threads, for each request that needs one.

    `families` are what `/metrics` exports. `ready`: whether all backlogs were read. `redact` is
    applied to text from logs. `reload` loads the settings again and returns an error's text, or "".
    `source` answers queries of curves and logs, `page` makes the page of a run, `ask` answers
    queries of Prometheus' API (`experimental`: as in the settings), `mounted` those below /mcp.
    `gate` has TLS and credentials; without both, requests may use only the host names of `names`
    (None: any). Commands need a token unless `takes_commands`.
    """

    snapshot: Callable[[], Snapshot]
    ready: Callable[[], bool]
    families: Families = tuple
    redact: Callable[[str], str] = str
    reload: Callable[[], str] = str
    silencing: Silencing | None = None
    takes_commands: bool = False
    source: Source | None = None
    page: RunPage = lambda snapshot, run: None
    ask: Asking | None = None
    experimental: bool = False
    mounted: Mounted | None = None
    gate: Gate = field(default_factory=Gate)
    names: HostNames | None = None
