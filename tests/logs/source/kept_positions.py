"""Reading positions as text, as the state store keeps them over a restart."""

import json
from collections.abc import Iterable
from dataclasses import asdict

from pydantic import TypeAdapter

from ldlm_monitor.logs.source.file_identity import FilePosition

_POSITIONS = TypeAdapter(list[FilePosition])


def positions_to_json(positions: Iterable[FilePosition]) -> str:
    return json.dumps([asdict(position) for position in positions])


def positions_from_json(text: str) -> list[FilePosition]:
    return _POSITIONS.validate_python(json.loads(text))
