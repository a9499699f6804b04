"""`queries.Source` over HTTP: lets the screen show a daemon that runs elsewhere.

It shares no client with `notify`, which lies above it: that one reads 4 KiB of text and sorts
failures by whether they last; this one reads large JSON, by ETag, with its own TLS.
"""

import http.client
import json
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import IO, Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request

from pydantic import TypeAdapter, ValidationError

from ldlm_monitor.base.errors import InputError, RemoteError, UsageError
from ldlm_monitor.base.queries import LogQuery, LogSlice, Withholding
from ldlm_monitor.base.snapshot import CurveView, Snapshot
from ldlm_monitor.base.text.addresses import is_loopback
from ldlm_monitor.base.text.sanitize import plain
from ldlm_monitor.base.timed_answers import opener_within

_T = TypeVar("_T")
_CURVES, _LOGS = TypeAdapter(CurveView), TypeAdapter(LogSlice)
POLL_SECONDS = 0.5  # between requests for the snapshot. A choice: more delays news, less is load
ANSWER_SECONDS = 10.0  # of waiting, a choice: more hides a dead daemon, less fails slow tunnels
WHOLE_ANSWER_SECONDS = 60.0  # for which the daemon sends one, however slowly it is read
RESOURCES = ("runs", "alerts", "incidents", "events")  # of the API; together they are the snapshot
SHOWN = 200  # characters of what is no answer: a choice; about two lines
MAX_ANSWER = 64 * 1024 * 1024  # bytes of an answer. A choice: a fleet's fits, memory is bounded
MAX_VALUES = 1_000_000
"""Values in an answer. A choice, as before: a wrong one of two bytes can become 600 of memory."""
# Texts of errors that several places raise: what is wrong, and the usual remedy.
_NOT_OURS = "does not answer as ldlm-monitor does"
_CHECK = "check that ldlm-monitor runs there and that it printed this address at its start"


class _NoRedirect(HTTPRedirectHandler):
    """Refuses redirects, since credentials must not go to another host."""

    def http_error_302(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage
    ) -> None:
        """Return None, which urllib reports as an error; not even the new URL is read."""

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class RemoteSource:
    """Polls a daemon for its snapshot, in a thread of its own.

    `name` is the daemon's host and port; `problem` is why the snapshot is old, otherwise empty.
    """

    def __init__(
        self, url: str, *, authorization: str | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """`authorization` is the header of that name; `tls` has the authorities to trust, by
        default the system's. Raises `UsageError` if `url` is no URL of a daemon or contains
        credentials, or if the header would be sent unencrypted to another host.
        """
        if "@" in url:
            raise UsageError(
                "the URL contains a user name or a password",
                where="attach",
                remedy="leave it out, and set attach.username and attach.password_file",
            )
        parts = _split(url)
        if authorization and parts.scheme == "http" and not is_loopback(parts.hostname):
            raise UsageError(
                "would send your credentials in the clear",
                where=url,
                remedy="use https, or an SSH tunnel to its loopback address",
            )
        self._headers = {"Authorization": authorization} if authorization else {}
        direct = [ProxyHandler({})] if is_loopback(parts.hostname) else []
        self._opener = opener_within(WHOLE_ANSWER_SECONDS, _NoRedirect(), *direct, tls=tls)
        self._base = f"{parts.scheme}://{parts.netloc}"
        self.name = parts.netloc
        self.problem = ""
        self._tags: dict[str, str] = {}  # the last ETag by resource
        self._parts: dict[str, Any] = {}
        self._has_changed = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="remote", daemon=True)
        self._snapshot: Snapshot | None = None

    def start(self) -> None:
        """Get the first snapshot, or raise `RemoteError`; then poll in a thread."""
        self._update()
        self._thread.start()

    def stop(self) -> None:
        """Stop polling, after the request that is under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def snapshot(self) -> Snapshot:
        """The last snapshot; `start` gets the first one."""
        assert self._snapshot is not None, "start comes first"
        return self._snapshot

    def series(
        self, run: str, quantity: str, start: int | None, end: int | None, points: int
    ) -> CurveView | None:
        """A curve from the daemon, or None, as `Source.series`. Raises `RemoteError`."""
        asked = {"run": run, "quantity": quantity, "start": start, "end": end, "points": points}
        try:
            return self._read(_CURVES, self._get("/api/v1/series", asked))
        except InputError:
            return None

    def log(self, query: LogQuery) -> LogSlice:
        """Records of a file that the daemon follows. Raises `RemoteError` or `InputError`."""
        asked = asdict(query) | {"backwards": int(query.backwards), "bars": int(query.bars)}
        return self._read(_LOGS, self._get("/api/v1/logs", asked))

    def query(self, given: Mapping[str, str]) -> dict[str, Any]:
        """`data`, and `warnings` if any, of a PromQL query (with `start`: a range), as the daemon's
        Prometheus API gives them. Raises as `log`.
        """
        kind = "query_range" if "start" in given else "query"
        found = self._get(f"/prometheus/api/v1/{kind}", given)
        return {name: found[name] for name in ("data", "warnings") if name in found}

    def held_back(self) -> dict[str, list[dict[str, Any]]]:
        """The daemon's `silences` and `acks` (acknowledgements), as in its API. Raises as `log`."""
        found = self._get("/api/v1/silences", {})
        return {name: list(found.get(name, ())) for name in ("silences", "acks")}

    def send(self, what: Withholding, document: dict[str, Any]) -> None:
        """Post a silence or an acknowledgement. Raises `RemoteError` or `InputError`."""
        self._answer(f"/api/v1/{what}", document)

    def _poll(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            try:
                self._update()
                self.problem = ""
            except RemoteError as problem:
                self.problem = problem.what

    def _update(self) -> None:
        """Get the resources that changed; if none did, the snapshot stays the same object."""
        for name in RESOURCES:
            try:
                fresh = self._answer(f"/api/v1/{name}", tag_of=name)
            except InputError:
                raise self._error(_NOT_OURS) from None
            if isinstance(reading := fresh.get("reading"), dict):  # before 0.1.0 it was an object
                fresh |= {"reading": reading.get("share"), "judged_to": reading.get("judged_to")}
            self._parts |= fresh
            self._has_changed |= bool(fresh)
        if self._has_changed:
            try:
                self._snapshot = Snapshot.model_validate({**self._parts, "points": ()})
            except ValidationError as error:
                raise self._error(
                    f"has another version ({error.error_count()} fields differ)",
                    "run the same version of ldlm-monitor on both sides",
                ) from error
            self._has_changed = False

    def _get(self, path: str, asked: Mapping[str, object]) -> dict[str, Any]:
        parameters = {name: value for name, value in asked.items() if value not in (None, "")}
        return self._answer(f"{path}?{urlencode(parameters)}")

    def _answer(
        self, path: str, document: Mapping[str, object] | None = None, *, tag_of: str = ""
    ) -> dict[str, Any]:
        """The JSON object at `path`, to which `document` is posted if it is given.

        It is empty if the resource `tag_of` has not changed since its last answer.
        """
        body = None if document is None else json.dumps(document).encode()
        known = {"If-None-Match": self._tags[tag_of]} if tag_of in self._tags else {}
        request = Request(self._base + path, body, self._headers | known)
        try:
            with self._opener.open(request, timeout=ANSWER_SECONDS) as response:
                text, tag = response.read(MAX_ANSWER), response.headers.get("ETag")
            found = json.loads(text) if sum(map(text.count, b",[{")) < MAX_VALUES else None
        except HTTPError as error:
            with error:  # its connection
                if error.code == 304:  # Not Modified
                    return {}
                raise self._refusal(error) from None
        except (URLError, OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise self._error(
                    f"shows a certificate that is not trusted ({reason.verify_message})",
                    "give its authority with --ca-file",
                ) from None
            raise self._error(f"does not answer ({plain(str(reason), SHOWN)})") from None
        except (ValueError, RecursionError):  # no JSON, or nested too deep for the parser
            found = None
        if not isinstance(found, dict):
            raise self._error(_NOT_OURS)
        if tag_of and tag:  # only now: after a cut answer, the daemon must send all of it again
            self._tags[tag_of] = tag
        return found

    def _refusal(self, error: HTTPError) -> UsageError:
        if error.code == 401:  # Unauthorized
            return self._error(
                "refuses these credentials" if self._headers else "asks for credentials",
                "set LDLM_ATTACH_TOKEN, or give a file with --token-file",
            )
        if 300 <= error.code < 400:
            return self._error(f"answers {error.code}, a redirect, which is not followed")
        try:  # 2000 bytes: a message is shorter, and a proxy's page is cut
            text = error.read(2000).decode("utf-8", "replace").strip()
        except (OSError, http.client.HTTPException):
            text = ""
        return InputError(text or error.reason, where=self.name)

    def _read(self, kind: TypeAdapter[_T], found: dict[str, Any]) -> _T:
        try:
            return kind.validate_python(found)
        except ValidationError as error:
            raise self._error(_NOT_OURS) from error

    def _error(self, what: str, remedy: str = _CHECK) -> RemoteError:
        return RemoteError(what, where=self._base, remedy=remedy)


def _split(url: str) -> SplitResult:
    """The parts of a daemon's URL, whose scheme may be missing. Raises `UsageError`."""
    with suppress(ValueError):  # a bracket that is not closed, or a port beyond 65535
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    raise UsageError("is no URL of a daemon", where=url, remedy="write it as http://127.0.0.1:9847")
