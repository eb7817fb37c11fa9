"""Reading what `-o json` printed, as a program that trusts the schemas would."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from podslice.documents.kinds import KINDS
from podslice.documents.schema import load_schema
from podslice.values.document import API_VERSION


def read_document(text: str, kind: str) -> dict[str, Any]:
    """The document of this kind; fails where it differs from its schema."""
    document = json.loads(text)
    check_document(document, kind)
    return document


def check_document(document: Any, kind: str | None = None) -> None:
    """Fail unless this is a document (of this kind) that says what its schema describes and nothing else."""
    assert isinstance(document, dict)
    assert document.get("apiVersion") == API_VERSION
    assert document.get("kind") in ((kind,) if kind else KINDS)
    problems = sorted(validator(document["kind"]).iter_errors(document), key=str)
    assert not problems, f"{document['kind']} {problems[0].json_path}: {problems[0].message}"


@cache
def validator(kind: str) -> Any:
    """Validates against the shipped schema, closed: fields that it does not describe are wrong."""
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema (make test installs it)")
    return jsonschema.Draft202012Validator(_closed(load_schema(kind)))


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    return {**closed, "additionalProperties": False} if isinstance(schema.get("properties"), dict) else closed
