"""JSON Schemas (draft 2020-12) made from the types of the documents.

msgspec says what a type is made of. Its own schemas are for what is read: a field with a default may be missing. A
document that is printed has every field, so its schema is made here.
"""

from __future__ import annotations

import json
from importlib.resources import files
from inspect import getdoc
from typing import Any

from msgspec import inspect

from podslice.documents.kinds import KINDS, type_of
from podslice.values.cpuset import CPUSet
from podslice.values.document import API_VERSION
from podslice.values.quantity import Quantity

FILES = ("Machine", "DeviceInventory", "LiveNode")
"""Kinds of documents that are read as well; fields with a default may be left out."""
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_CPU_LIST = r"^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$"
_FOREIGN: dict[type, dict[str, Any]] = {
    CPUSet: {"type": "string", "pattern": _CPU_LIST, "description": "A CPU list as Linux writes it, such as 0-3,8."},
    Quantity: {"type": "string", "description": "An amount as Kubernetes writes it, such as 500m or 64Gi."},
}
_SCALARS: dict[type, str] = {
    inspect.StrType: "string",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.BoolType: "boolean",
    inspect.NoneType: "null",
}


def make_schema(kind: str) -> dict[str, Any]:
    """Make the schema of a kind from its type."""
    maker = _Maker(every_field=kind not in FILES)
    body = maker.struct(inspect.type_info(type_of(kind)))
    header = {"apiVersion": {"const": API_VERSION}, "kind": {"const": kind}}
    schema = {
        "$schema": _DRAFT,
        "$id": f"https://podslice.io/schemas/v1alpha1/{kind}.json",
        "title": kind,
        "description": f"{body['description']}\n\nPrinted by `{KINDS[kind].command}`.",
        "type": "object",
        "properties": {**header, **body["properties"]},
        "required": [*header, *body["required"]],
    }
    return {**schema, "$defs": dict(sorted(maker.definitions.items()))} if maker.definitions else schema


def load_schema(kind: str) -> dict[str, Any]:
    """Load the schema of a kind that this package ships."""
    schema: dict[str, Any] = json.loads((files("podslice.documents") / "schemas" / f"{kind}.json").read_bytes())
    return schema


class _Maker:
    """Collects the definitions of the types below one document."""

    def __init__(self, *, every_field: bool) -> None:
        self.every_field = every_field
        self.definitions: dict[str, dict[str, Any]] = {}
        self._named: dict[str, type] = {}

    def struct(self, kind: inspect.Type) -> dict[str, Any]:
        assert isinstance(kind, inspect.StructType)
        tag = {kind.tag_field: {"const": kind.tag}} if kind.tag_field else {}
        needed = [field.encode_name for field in kind.fields if self.every_field or field.required]
        return {
            "type": "object",
            "description": getdoc(kind.cls) or "",
            "properties": {**tag, **{field.encode_name: self.schema(field.type) for field in kind.fields}},
            "required": [*tag, *needed],
        }

    def schema(self, kind: inspect.Type) -> dict[str, Any]:
        if isinstance(kind, inspect.Metadata):
            return dict(kind.extra_json_schema or {})
        if isinstance(kind, inspect.StructType):
            return self._reference(kind)
        if isinstance(kind, inspect.UnionType):
            # A file leaves out what is not there.
            there = [one for one in kind.types if self.every_field or not isinstance(one, inspect.NoneType)]
            return {"anyOf": [self.schema(one) for one in there]} if len(there) > 1 else self.schema(there[0])
        if isinstance(kind, (inspect.VarTupleType, inspect.ListType)):
            return {"type": "array", "items": self.schema(kind.item_type)}
        if isinstance(kind, inspect.DictType):
            return {"type": "object", "additionalProperties": self.schema(kind.value_type)}
        if isinstance(kind, inspect.LiteralType):
            return {"enum": list(kind.values)}
        if isinstance(kind, inspect.CustomType):
            return dict(_FOREIGN[kind.cls])
        if isinstance(kind, inspect.AnyType):
            return {}
        return {"type": _SCALARS[type(kind)]}

    def _reference(self, kind: inspect.StructType) -> dict[str, Any]:
        name = kind.cls.__name__
        # Definitions are found by the bare name, so two types of one name would share a schema.
        assert self._named.setdefault(name, kind.cls) is kind.cls, f"two types of the name {name} in one document"
        if name not in self.definitions:
            self.definitions[name] = {}  # a type that holds itself finds its name
            self.definitions[name] = self.struct(kind)
        return {"$ref": f"#/$defs/{name}"}
