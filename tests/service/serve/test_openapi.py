"""`/api/v1/openapi.json` describes what the API really does."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from ldlm_monitor.base.chunk import Chunk
from ldlm_monitor.base.snapshot import Snapshot
from ldlm_monitor.base.text.sanitize import redact
from ldlm_monitor.judge.core.monitor import Monitor
from ldlm_monitor.records import adapter, to_json
from ldlm_monitor.service.daemon.local_source import LocalSource
from ldlm_monitor.service.notify.silences import Silences
from ldlm_monitor.service.serve import Server, Site

DOCS = Path(__file__).parents[3] / "docs"
RUN = "a.log"
FAILURE = (
    b"Traceback (most recent call last):\n"
    b'  File "train.py", line 3, in <module>\n    step()\n'
    b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 40.00 GiB total)\n"
)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """A run with a NaN and a crash, in a file that can be read."""
    path = tmp_path_factory.mktemp("logs") / RUN
    lines = [f"step {n}/100 loss {'nan' if n > 6 else 3 - n / 9}\n".encode() for n in range(9)]
    path.write_bytes(b"".join([*lines, FAILURE]))
    monitor, offset = Monitor(), 0
    for number, line in enumerate([*lines, FAILURE], 1):
        monitor.feed(Chunk(str(path), (1, 1, 0), offset, number, line), 1_769_681_700.0 + number)
        offset += len(line)
    monitor.finish(1_769_681_730.0, [str(path)])
    return monitor.snapshot()


@pytest.fixture
def site(running: Any, watched: Snapshot, tmp_path: Path) -> Iterator[Any]:
    silences = Silences(tmp_path / "silences.sqlite")
    server = Server(
        "127.0.0.1",
        0,
        Site(
            snapshot=lambda: watched, ready=lambda: True,
            redact=redact, silencing=silences, takes_commands=True,
            source=LocalSource(lambda: watched, silences, RUN),
        ),
    )  # fmt: skip
    before, running.port = running.port, server.port
    server.start()
    yield running
    running.port = before
    server.stop()
    silences.close()


@pytest.fixture
def document(site: Any) -> dict[str, Any]:
    return dict(json.loads(site.ask("/api/v1/openapi.json").body))


def checked(document: dict[str, Any], schema: dict[str, Any], value: object) -> None:
    whole = {"components": document["components"], **schema}
    Draft202012Validator(whole).validate(value)


def test_the_document_is_openapi(document: dict[str, Any]) -> None:
    OpenAPIV31SpecValidator(document).validate()
    assert {"/api/v1/runs", "/api/v1/logs", "/api/v1/stream"} <= set(document["paths"])
    (number,) = document["paths"]["/api/v1/silences/{number}"]["delete"]["parameters"]
    assert (number["in"], number["required"]) == ("path", True)


def test_every_answer_is_of_the_schema_that_describes_it(
    site: Any, document: dict[str, Any], watched: Snapshot, make_snapshot: Callable[..., Snapshot]
) -> None:
    assert watched.incidents
    assert watched.alerts
    (run,) = watched.runs
    bodies: dict[str, dict[str, Any]] = {
        "/api/v1/silences": {
            "matchers": [{"name": "alertname", "value": "LossSpike"}],
            "endsAt": "2999-01-01T00:00:00Z", "createdBy": "me", "comment": "known",
        },
        "/api/v1/acks": {
            "alert": watched.alerts[0].name, "labels": watched.alerts[0].labels, "by": "me",
        },
    }  # fmt: skip
    queries = {
        "/api/v1/series": f"?run={run.name}&quantity=loss&points=5",
        "/api/v1/logs": f"?path={run.files[0]}&at_line=1&after=3",
    }
    stored = ""
    for path, methods in document["paths"].items():
        for method, operation in sorted(methods.items(), key=lambda each: each[0] != "post"):
            if path == "/api/v1/stream":
                continue  # it does not end: its events have tests of their own
            body = json.dumps(bodies[path]).encode() if method == "post" else None
            if body is not None:
                content = operation["requestBody"]["content"]["application/json"]
                checked(document, content["schema"], bodies[path])
            asked = path.replace("{number}", stored) + queries.get(path, "")
            answer = site.ask(asked, method.upper(), body=body)
            described = operation["responses"][str(answer.status)]["content"]
            value = json.loads(answer.body)
            checked(document, described["application/json"]["schema"], value)
            stored = value.get("silenceID", stored)
            named = {
                name.partition("=")[0] for name in queries.get(path, "")[1:].split("&") if name
            }
            assert named <= {each["name"] for each in operation["parameters"]}


def test_a_value_that_is_not_described_is_found(document: dict[str, Any], site: Any) -> None:
    """What the test above relies on."""
    value = json.loads(site.ask("/api/v1/runs").body)
    value["runs"][0]["health"] = "GOOD"
    answer = document["paths"]["/api/v1/runs"]["get"]["responses"]["200"]
    with pytest.raises(Exception, match="GOOD"):
        checked(document, answer["content"]["application/json"]["schema"], value)


def test_records_and_snapshots_are_of_their_schemas(watched: Snapshot) -> None:
    def schema(name: str) -> Draft202012Validator:
        return Draft202012Validator(json.loads((DOCS / f"{name}.schema.json").read_text("utf-8")))

    for event in watched.events:
        schema("records").validate(json.loads(to_json(event)))
    sample = adapter().validate_python(
        {"type": "sample", "run": "a", "rank": None, "step": 1, "epoch": None, "time": None,
         "values": {"loss": float("nan")}, "source": "text",
         "position": {"path": "a.log", "line": 1, "offset": 0}},
    )  # fmt: skip
    schema("records").validate(json.loads(to_json(sample)))
    schema("snapshot").validate(json.loads(watched.model_dump_json()))
