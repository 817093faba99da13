"""The JSON Schema of the stream (CONTRACT section 2): one validator for every test that reads `--json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

SCHEMA = json.loads((Path(__file__).parent / "stream.schema.json").read_text())
_validator = jsonschema.Draft202012Validator(SCHEMA)


def checked(line: str) -> dict[str, Any]:
    """The object of one line. Raises `jsonschema.ValidationError` where it is none of the contract."""
    document: dict[str, Any] = json.loads(line)
    _validator.validate(document)
    return document


def stream(text: str) -> list[dict[str, Any]]:
    """Every line of a command's standard output; the last one is the summary, and no other one is."""
    lines = [checked(line) for line in text.splitlines()]
    kinds = [line["kind"] for line in lines]
    assert kinds[-1:] == ["summary"] and kinds.count("summary") == 1, kinds
    return lines
