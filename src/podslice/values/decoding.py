"""Errors of typed decoding, in words for people who write YAML.

Every reader of typed data decodes with msgspec, whose errors speak of arrays, `str` and JSONPath; this module is the
one place that translates them.
"""

from __future__ import annotations

import re
import reprlib
from typing import Literal, NamedTuple

MAP_KEY = "[...]"
"""Stands in a path for a key of a map: msgspec does not say which key it was."""
_PLACE = re.compile(r" - at `(?:key` in `)?\$\.?(?P<path>.*)`$")
_EXPECTED = re.compile(
    r"expected `(?P<wanted>\w+(?: \| (?!null)\w+)*)(?P<or_null> \| null)?`, got `(?P<found>\w+)`", re.IGNORECASE
)
_BOUND = re.compile(r"expected `(?P<wanted>int|float|str)` (?P<bound>[<>]=? |of |matching )", re.IGNORECASE)
_VALUE = re.compile(r"Invalid (?:enum )?value ")
_MISSING = "missing required field"
_UNKNOWN = re.compile(r"contains unknown field `(?P<name>.*)`", re.DOTALL)
_WORDS = {
    "object": "an object",
    "array": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "NumberText": "a number with a fraction or an exponent",
}
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_LONGEST = 80
_SCALARS = ("int", "float", "bool", "NumberText")


class DecodingProblem(NamedTuple):
    """A translated decoding error.

    `path` is the field as in `spec.containers[0].name`, empty for the whole; `remedy` is empty where the problem says
    it; `unknown` is the name of an unknown field at the path; `got`: whether the problem ends with the kind or the
    value that was found.
    """

    path: str
    problem: str
    remedy: str
    unknown: str
    got: Literal["", "kind", "value"]


def decoding_problem(text: str) -> DecodingProblem:
    """Translate the text of a msgspec `ValidationError`."""
    place = _PLACE.search(text)
    path = place["path"] if place else ""
    problem = _PLACE.sub("", text)
    kinds = _EXPECTED.search(problem)
    remedy = ""
    if kinds:
        wanted, found = kinds["wanted"], kinds["found"]
        words = " or ".join(_WORDS.get(kind, kind) for kind in wanted.split(" | "))
        problem = _EXPECTED.sub(f"expected {words}, got {_WORDS.get(found, found)}", problem)
        if wanted == "str" and found in _SCALARS:
            remedy = "put it in quotes"
    elif _BOUND.search(problem):
        problem = _BOUND.sub(lambda match: f"expected {_WORDS[match['wanted']]} {match['bound']}", problem)
    elif _MISSING in problem:
        remedy = "add the field"
    unknown = _UNKNOWN.search(problem)
    got: Literal["", "kind", "value"] = "kind" if kinds else "value" if _VALUE.match(problem) else ""
    # msgspec begins its errors with a capital; here a place comes before them.
    return DecodingProblem(path, problem[:1].lower() + problem[1:], remedy, unknown["name"] if unknown else "", got)


def with_value(found: DecodingProblem, data: object) -> str:
    """Return the problem followed by the offending value of `data`, where that is a scalar which the text does not
    quote yet."""
    for name, index in _STEP.findall(found.path):
        if index and isinstance(data, list) and int(index) < len(data):
            data = data[int(index)]
        elif name and isinstance(data, dict) and name in data:
            data = data[name]
        else:
            return found.problem
    if found.unknown or found.got == "value" or data is None or isinstance(data, (dict, list)):
        return found.problem
    text = abbreviate(data) if isinstance(data, str) else str(data).lower()[:_LONGEST]
    return f"{found.problem}{':' if found.got == 'kind' else ', got'} {text}"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = _LONGEST


def abbreviate(value: object) -> str:
    """Return `value` as text for a message, never longer than a line."""
    return _SHORT.repr(value)
