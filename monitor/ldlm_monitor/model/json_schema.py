"""The JSON Schema of what a command writes, from the model that it is written by."""

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import FloatSchema


class _Spelled(GenerateJsonSchema):
    """Non-finite numbers are spelled: JSON has none."""

    def float_schema(self, schema: FloatSchema) -> JsonSchemaValue:
        return {"anyOf": [super().float_schema(schema), {"enum": ["NaN", "Infinity", "-Infinity"]}]}


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """By draft 2020-12. The model spells non-finite numbers (`ser_json_inf_nan="strings"`)."""
    schema = model.model_json_schema(mode="serialization", schema_generator=_Spelled)
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema}
