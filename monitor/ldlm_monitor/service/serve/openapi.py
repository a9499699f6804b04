"""The OpenAPI document of `/api/v1`, made of its routes and of the models of their values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, TypeAdapter, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core.core_schema import FloatSchema
from starlette.routing import Route

from ldlm_monitor import __version__
from ldlm_monitor.base.alert import Transition
from ldlm_monitor.base.incident_view import View
from ldlm_monitor.base.queries import LogQuery, LogSlice
from ldlm_monitor.base.snapshot import CurveView, Snapshot
from ldlm_monitor.service.serve import pages
from ldlm_monitor.service.serve.stream import RunEvent, SnapshotEvent

ROOT = "/api/v1"
_COMPONENTS = "#/components/schemas/{model}"


class Spelled(GenerateJsonSchema):
    """Non-finite numbers are spelled: JSON has none."""

    def float_schema(self, schema: FloatSchema) -> JsonSchemaValue:
        """A number, or the name of one that JSON cannot express."""
        return {"anyOf": [super().float_schema(schema), {"enum": ["NaN", "Infinity", "-Infinity"]}]}


class Stored(View):
    """The id of a silence or an acknowledgement."""

    silenceID: str  # noqa: N815 # Alertmanager's name


class HeldBack(View):
    """The silences that are not over, in the fields of Alertmanager's API v2, and the acks."""

    silences: tuple[dict[str, Any], ...]
    acks: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """A request: what it does, the types of its parameters, body and answer, and its status."""

    summary: str
    answer: Any
    parameters: Any = None
    body: Any = None
    status: int = 200
    media_type: str = "application/json"


def operations(bodies: Mapping[str, type[BaseModel]]) -> dict[tuple[str, str], Operation]:
    """By method and path below ROOT. `bodies`: the models of what is posted, by path."""
    curve = create_model(
        "Curve", __base__=View, run=(str, ...), quantity=(str, ...),
        **{name: (kind, ...) for name, kind in get_type_hints(CurveView).items()},
    )  # type: ignore[call-overload] # fmt: skip
    found = {
        ("GET", f"/{name}"): Operation(f"The {name}, with the snapshot's version and time", model)
        for name, model in ((name, _resource(name)) for name in pages.RESOURCES)
    }
    return found | {
        ("GET", "/series"): Operation("A quantity over steps", curve, pages.SeriesQuery),
        ("GET", "/logs"): Operation("A slice of a followed file", LogSlice, LogQuery),
        ("GET", "/silences"): Operation("Silences and acknowledgements", HeldBack),
        ("POST", "/silences"): Operation(
            "Hold back the alerts that match", Stored, body=bodies.get("/silences"), status=201
        ),
        ("DELETE", "/silences/{number}"): Operation("End a silence or an ack", Stored),
        ("POST", "/acks"): Operation(
            "Hold back one alert until it ends", Stored, body=bodies.get("/acks"), status=201
        ),
        ("GET", "/stream"): Operation(
            "What changes, as server-sent events: `transition`, `run`, `snapshot`",
            str, pages.StreamQuery, media_type="text/event-stream",
        ),
        ("GET", "/openapi.json"): Operation("This document", dict[str, Any]),
    }  # fmt: skip


def _resource(name: str) -> type[BaseModel]:
    fields = Snapshot.model_fields
    parts = {part: (fields[part].annotation, ...) for part in pages.parts(name)}
    model: type[BaseModel] = create_model(name.capitalize(), __base__=View, **parts)  # type: ignore[call-overload]
    return model


def document(routes: Iterable[Route], bodies: Mapping[str, type[BaseModel]]) -> dict[str, Any]:
    """OpenAPI 3.1 of those `routes` that lie below ROOT. Raises KeyError for an unknown one."""
    known = operations(bodies)
    served = [
        (method, route.path.removeprefix(ROOT))
        for route in routes
        if route.path.startswith(ROOT)
        for method in sorted((route.methods or set()) - {"HEAD"})
    ]
    wanted: list[tuple[str, JsonSchemaMode, Any]] = [
        (kind.__name__, "serialization", kind) for kind in (Transition, RunEvent, SnapshotEvent)
    ]
    for key in served:
        each = known[key]
        wanted.append((f"{key} answer", "serialization", each.answer))
        wanted.append((f"{key} parameters", "validation", each.parameters))
        wanted.append((f"{key} body", "validation", each.body))
    # Together, so that each model is defined once.
    found, rest = TypeAdapter.json_schemas(
        [(key, mode, TypeAdapter(kind)) for key, mode, kind in wanted if kind is not None],
        ref_template=_COMPONENTS,
        schema_generator=Spelled,
    )
    made = {str(key): schema for (key, _), schema in found.items()}
    components = rest.get("$defs", {})
    paths: dict[str, Any] = {}
    for method, path in served:
        of = f"{(method, path)}"
        described = _operation(known[method, path], path, made, of, components)
        paths.setdefault(ROOT + path, {})[method.lower()] = described
    credentials = {name: {"type": "http", "scheme": name} for name in ("basic", "bearer")}
    return {
        "openapi": "3.1.0",
        "info": {"title": "ldlm-monitor", "version": __version__},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": credentials},
        "security": [{}, {"basic": []}, {"bearer": []}],
    }


def _operation(
    each: Operation, path: str, made: Mapping[str, Any], of: str, components: Mapping[str, Any]
) -> dict[str, Any]:
    given = made.get(f"{of} parameters", {})
    given = components.get(given.get("$ref", "").rpartition("/")[2], given)
    names = [part.strip("{}") for part in path.split("/") if part.startswith("{")]
    inside = [_parameter(name, {"type": "string"}, "path", required=True) for name in names]
    required = given.get("required", ())
    inside += [
        _parameter(name, schema, "query", required=name in required)
        for name, schema in given.get("properties", {}).items()
    ]
    problem = {"description": "One line: what is wrong", "content": {"text/plain": {}}}
    answer = {
        "description": each.summary,
        "content": {each.media_type: {"schema": made[f"{of} answer"]}},
    }
    described = {
        "summary": each.summary,
        "parameters": inside,
        "responses": {str(each.status): answer, "default": problem},
    }
    if each.body is not None:
        content = {"application/json": {"schema": made[f"{of} body"]}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _parameter(name: str, schema: Any, place: str, *, required: bool) -> dict[str, Any]:
    return {"name": name, "in": place, "required": required, "schema": schema}
