"""YAML and JSON as Kubernetes reads them, safely.

PyYAML's defaults surprise: `12:30:45` becomes a number, dates become objects, `1e3` stays text, duplicate keys pass.
Here scalars mean what they mean to a kubelet (`scalars`), documents are bounded while they are read (`build`), and
duplicate keys are refused. A text that is JSON goes through the standard library's scanner, which is faster.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import yaml

from podslice.reading.files import MAX_TEXT_BYTES
from podslice.reading.scalars import FALSES, NULLS, TAG, TRUES, number_text, parse_plain_scalar
from podslice.reading.yaml_events import MAX_DEPTH, Builder, DuplicateKeyError, FaultError
from podslice.values.errors import InputError, PodsliceError

MAX_NODES = 3_000_000
"""Most values in a text."""


class DuplicateKey(NamedTuple):
    """A key that an object has already; `line` counts from 1, `document` the non-empty documents before it."""

    key: str
    line: int
    document: int


def load_documents(
    text: str, source: str = "", *, most_nodes: int = MAX_NODES, duplicates: list[DuplicateKey] | None = None
) -> list[Any]:
    """Return all non-empty documents of a YAML or JSON stream as plain data. Raises a one-line `InputError`, also for a
    duplicate key, unless `duplicates` is a list that collects such keys; their last value counts then."""
    # Logs do not count: they are most of a dump.
    text = drop_log_sections(text.removeprefix("\ufeff"))
    if len(text) > MAX_TEXT_BYTES:
        raise InputError(f"is {len(text)} bytes long", source=source, remedy=f"at most {MAX_TEXT_BYTES} are read")
    if text.lstrip()[:1] in ("{", "["):
        try:
            return _load_json(text, source, most_nodes)
        except (json.JSONDecodeError, RecursionError, _NotJSONError):
            # It may still be YAML in flow style; where it is not, the YAML reader names line and column.
            pass
    builder = Builder(most_nodes, None if duplicates is None else [])
    return [document for document in _load_yaml(text, source, builder, duplicates) if document is not None]


def _load_yaml(text: str, source: str, builder: Builder, duplicates: list[DuplicateKey] | None) -> Iterator[Any]:
    number = filled = 0
    event: Any = None
    template = "render the template first: helm template" if "{{" in text else ""
    try:
        # The base loader resolves no tags; the builder gives scalars the meaning that they have to a kubelet.
        for event in yaml.parse(text, Loader=yaml.CBaseLoader):
            builder.take(event)
            if builder.duplicates and duplicates is not None:
                duplicates.append(DuplicateKey(builder.duplicates.pop(), event.start_mark.line + 1, filled))
            if type(event) is yaml.DocumentEndEvent:
                filled += builder.root is not None
                yield builder.root
                number += 1
    except DuplicateKeyError as fault:
        problem = f"{fault.problem} in line {event.start_mark.line + 1}"
        raise InputError(problem, source=source, document=number, remedy=fault.remedy) from None
    except FaultError as fault:
        place = f"line {event.start_mark.line + 1} column {event.start_mark.column + 1}"
        remedy = template or fault.remedy
        raise InputError(f"{place}: {fault.problem}", source=source, document=number, remedy=remedy) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1} column {mark.column + 1}: " if mark is not None else ""
        problem = f"is not valid YAML: {where}{(error.problem or str(error)).splitlines()[0]}"
        raise InputError(problem, source=source, document=number, remedy=template) from None
    except yaml.YAMLError as error:
        problem = str(error).splitlines()[0]
        raise InputError(f"is not valid YAML: {problem}", source=source, remedy=template) from None
    except ValueError as error:  # a surrogate that cannot be encoded
        raise InputError(f"is not valid YAML: {error}", source=source, document=number) from None


# JSON


class _NotJSONError(PodsliceError):
    """Raised for text that is not JSON, for which the YAML reader has the better message."""


_BLANK = re.compile(r"[ \t\r\n]*")


def _load_json(text: str, source: str, most_nodes: int) -> list[Any]:
    """Return the values of a JSON text: one, or several after each other, as jq and `kubectl get --watch` write them.
    Each is an object or an array. Raises `InputError`, and the errors that `load_documents` catches for text that is
    not JSON."""
    # Before parsing, which would build all values first. Texts in quotes count too: the bound is generous.
    if text.count(",") + text.count("[") + text.count("{") > most_nodes:
        raise InputError(f"holds more than {most_nodes} values", source=source, remedy="split the file")
    values, place = [], _end_of_blank(text, 0)
    has_surrogates = _SURROGATE_ESCAPE.search(text) is not None
    while place < len(text):
        if text[place] not in "{[":
            raise _NotJSONError("more text after a value")
        try:
            value, place = _DECODER.raw_decode(text, place)
        except (json.JSONDecodeError, RecursionError):
            raise
        except ValueError as error:
            # Python converts no more than 4300 digits to an integer.
            raise InputError(f"holds a number that is too long: {error}".split(";")[0], source=source) from None
        _check_depth(value, source)
        values.append(_without_surrogates(value) if has_surrogates else value)
        place = _end_of_blank(text, place)
    return values


def _end_of_blank(text: str, place: int) -> int:
    match = _BLANK.match(text, place)
    return match.end() if match else place


def _no_json(name: str) -> NoReturn:
    raise _NotJSONError(name)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _NotJSONError("duplicate key")
    return members


_DECODER = json.JSONDecoder(parse_float=number_text, parse_constant=_no_json, object_pairs_hook=_members)


def _check_depth(document: Any, source: str) -> None:
    level = [document]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            below += value.values() if isinstance(value, dict) else value
        level = [value for value in below if isinstance(value, dict | list)]
        if not level:
            return
    raise InputError(f"is nested deeper than {MAX_DEPTH} levels", source=source)


_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATES = re.compile("[\ud800-\udfff]")


def _without_surrogates(value: Any) -> Any:
    """Replace unpaired surrogates by U+FFFD, as Go does."""
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_SURROGATES.sub("\ufffd", key): _without_surrogates(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    return value


# Writing and places


class _Loader(yaml.CSafeLoader):
    """Loader for positions only: nodes with their marks, all scalars text."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's name and type


class Dumper(yaml.CSafeDumper):
    """Dumper that quotes every text which the reader above, or another reader of YAML 1.1, would not read as text: a
    PCI address such as 0000:00:03.0 is a number of base 60 to some."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's name and type


for _name, _pattern, _firsts in (
    ("bool", "|".join((*TRUES, *FALSES)), "yYnNtTfFoO"),
    ("null", "|".join(re.escape(word) for word in NULLS), ["~", "n", "N", ""]),
    ("int", r"[-+]?(?:0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO]?[0-7_]*|[1-9][0-9_]*)", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9_]+)?", "-+.0123456789"),
    ("merge", "<<", "<"),
    ("float", r"[-+]?[0-9][0-9_]*(?::[0-9]+)+(?:\.[0-9_]*)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+.0123456789"),
    ("timestamp", r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?", "0123456789"),
    ("value", "=", "="),
):
    Dumper.add_implicit_resolver(TAG + _name, re.compile(f"(?:{_pattern})\\Z"), list(_firsts))


def dump(data: Any, *, only_ascii: bool = False) -> str:
    """Return plain data as YAML that reads back as the same data; `only_ascii` escapes every other character."""
    text = yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=not only_ascii)
    assert isinstance(text, str)
    return text


Place = tuple[int, int]
"""Line and column, counted from 1."""
_STEP = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and not node.style and parse_plain_scalar(node.value) is None


class Positions:
    """Positions of the fields of a text that `load_documents` could read. JSON that is not YAML (with surrogate halves
    escaped one by one) has one position, its beginning."""

    def __init__(self, text: str) -> None:
        try:
            roots = list(yaml.compose_all(text, Loader=_Loader))
        except yaml.YAMLError:
            roots = []
        self._documents = [root for root in roots if root is not None and not _is_empty(root)]
        self._text = text

    def find(self, document: int, path: str) -> Place:
        """Return line and column of a field such as `spec.containers[0].resources.limits[cpu]`, or of its nearest
        parent in the text. The position of an entry is that of its key."""
        mark, _ = self._follow(document, path)
        return (1, 1) if mark is None else (mark.line + 1, mark.column + 1)

    def find_inside(self, document: int, path: str, inside: Place) -> Place:
        """Return the position in the text of a position inside the value at a path, which is itself a document. Where
        the value is not a block of lines (`|`), the position of its key."""
        mark, node = self._follow(document, path)
        if not isinstance(node, yaml.ScalarNode) or node.style != "|" or mark is None:
            return self.find(document, path)
        line = node.start_mark.line + inside[0]
        lines = self._text.split("\n", line + 1)
        content = lines[line] if line < len(lines) else ""
        # The value's own indentation was taken off each of its lines.
        given = node.value.split("\n")[inside[0] - 1] if inside[0] <= node.value.count("\n") + 1 else ""
        return line + 1, inside[1] + max(0, len(content.rstrip("\r")) - len(given))

    def _follow(self, document: int, path: str) -> tuple[yaml.Mark | None, yaml.Node | None]:
        """Return the mark and the node of the deepest field on a path; None where there are no positions."""
        if not self._documents:
            return None, None
        node = self._documents[document]
        mark = node.start_mark
        for name, bracketed in _STEP.findall(path):
            step = name or bracketed
            if isinstance(node, yaml.SequenceNode) and step.isdigit() and int(step) < len(node.value):
                node = node.value[int(step)]
                mark = node.start_mark
                continue
            pairs = node.value if isinstance(node, yaml.MappingNode) else []
            found = next(((key, value) for key, value in pairs if key.value == step), None)
            if found is None:
                break
            mark, node = found[0].start_mark, found[1]
        return mark, node


# `kubectl cluster-info dump` on one stream: lists of objects, and between them the logs of containers, between lines of
# their own. They may hold anything, also text that looks like objects.


_START = re.compile(r"^==== START logs for container ([^\n]{1,600}) ====$", re.MULTILINE)
_MARK = "==== START logs for container "


def drop_log_sections(text: str) -> str:
    """Return a text without its sections of logs. Empty lines take their place, so that the others keep their
    numbers."""
    if _MARK not in text:
        return text
    kept: list[str] = []
    place = 0
    while (start := _START.search(text, place)) is not None:
        # A log need not end with a line: the end mark may follow its last words.
        mark = f"==== END logs for container {start[1]} ===="
        end = text.find(mark, start.end())
        end = len(text) if end < 0 else end + len(mark)
        kept += [text[place : start.start()], "\n" * text.count("\n", start.start(), end)]
        place = end
    kept.append(text[place:])
    return "".join(kept)
