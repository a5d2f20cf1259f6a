"""What commands print with --json against the schema that is shipped."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import workbench

try:
    from jsonschema import Draft202012Validator
except ImportError:  # of the extra dev: without it documents are read, and not compared with the schema
    Draft202012Validator = None

SCHEMA = Path(workbench.__file__).parent / "schemas" / "document.json"


def closed(value: Any) -> Any:
    """The schema without room for fields that it does not describe."""
    if isinstance(value, list):
        return [closed(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {key: closed(item) for key, item in value.items()}
    return {**made, "additionalProperties": False} if made.get("type") == "object" and "properties" in made else made


@functools.cache
def validator() -> Any:
    """Of documents, to the last field."""
    schema = json.loads(SCHEMA.read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(closed(schema))


def check_document(document: dict[str, Any]) -> None:
    """Raises jsonschema.ValidationError for a document that is not as the schema says, where that is installed."""
    if Draft202012Validator is None:
        return
    validator().validate(document)
