"""Quantity cases: parsing, text, rounding and arithmetic (FORMAT.md, API-level cases)."""

from __future__ import annotations

import json
from typing import Any

from podslice.values.go.gofault import syntax_error
from podslice.values.quantity import Quantity, QuantityError
from podslice.values.quirks import Quirks
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

TYPES = ("quantity", "quantityJSON", "quantityOp")
Json = dict[str, Any]


def run(case: Json, quirks: Quirks, release: Release = DEFAULT) -> Json:
    """Return the complete result of one quantity case."""
    if case["type"] == "quantityOp":
        return {"a": case["a"], "b": case["b"], "type": case["type"], "result": _operations(case["a"], case["b"])}
    key = "in" if case["type"] == "quantity" else "raw"
    result: Json = {key: case[key], "type": case["type"]}
    try:
        result["result"] = _facts(Quantity.parse(case["in"]) if key == "in" else parse_json(case["raw"]))
    except QuantityError as error:
        result["result"] = {"error": str(error)}
    return result


def parse_json(raw: str) -> Quantity:
    """Parse a quantity from the JSON text of a manifest value: string, bare number or null (pod-level-resources 1.2).

    Escapes in strings stay, as upstream does not decode them. Raises `QuantityError`.
    """
    problem = syntax_error(raw)
    if problem:
        raise QuantityError(problem)
    text = raw.strip()
    if text == "null":
        return Quantity(0, "", 0)
    return Quantity.parse(text[1:-1].strip() if text.startswith('"') else text)


def _facts(quantity: Quantity) -> Json:
    integer = quantity.as_int64()
    rounded = quantity.round_up_milli()
    return {
        # Upstream answers 0, false for a value kept as a big decimal, even where it would fit.
        "asInt64": quantity.value() if quantity.small and quantity.scale >= 0 else 0,
        "asInt64ok": integer is not None,
        "canonical": str(quantity),
        "dec": quantity.decimal_text(),
        "format": quantity.format,
        "isZero": quantity.is_zero(),
        "json": json.dumps(str(quantity)),
        "milli": quantity.milli_value(),
        "recanonical": quantity.canonical(),
        "roundUpMilli": str(rounded),
        "roundUpMilliExact": rounded.nano == quantity.nano,
        "sign": quantity.sign(),
        "value": quantity.value(),
    }


def _operations(a: str, b: str) -> Json:
    try:
        one, other = Quantity.parse(a), Quantity.parse(b)
    except QuantityError:
        return {"error": "parse"}
    return {
        "add": _result(one.add(other)),
        "cmp": (one > other) - (one < other),
        "sub": _result(one.sub(other)),
    }


def _result(quantity: Quantity) -> Json:
    return {"s": str(quantity), "v": quantity.value(), "m": quantity.milli_value()}
