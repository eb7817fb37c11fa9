"""YAML as Kubernetes reads it, safely.

PyYAML's defaults surprise: `12:30:45` becomes a number, dates become objects, `1e3` stays text, duplicate keys pass.
This loader reads scalars as Kubernetes' own YAML library does, refuses duplicate keys, and refuses documents whose
aliases expand without bound.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from podslice.core.errors import InputError

MAX_BYTES = 64 << 20
MAX_NODES = 3_000_000
MAX_DEPTH = 100


class _Loader(yaml.CSafeLoader):
    """CSafeLoader with the resolver below and unique keys."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's name and type

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key_node.tag != "tag:yaml.org,2002:merge" and key in seen:
                mark = key_node.start_mark
                raise InputError(f"duplicate key {key!r} in line {mark.line + 1}", remedy="keep one of the two")
            seen.add(key)
        return super().construct_mapping(node, deep=True)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool",
    re.compile(r"(?:true|True|TRUE|false|False|FALSE|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF)\Z"),
    list("tTfFyYnNoO"),
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"[-+]?(?:0|[1-9][0-9]*|0x[0-9a-fA-F]+|0o?[0-7]+)\Z"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?\Z"),
    list("-+.0123456789"),
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"<<\Z"), ["<"])


def _construct_number(loader: _Loader, node: yaml.ScalarNode) -> Any:
    text = str(loader.construct_scalar(node))
    try:
        return int(text)
    except ValueError:
        pass
    lowered = text.lower().replace("+", "")
    if lowered.lstrip("-").startswith(("0x", "0o")):
        return int(lowered, 0)
    return _number(text)


class NumberText(float):
    """A YAML number that remembers how it was written, because quantities depend on it."""

    text: str

    def __str__(self) -> str:
        return self.text


def _number(text: str) -> NumberText:
    number = NumberText(text)
    number.text = text
    return number


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_number)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_number)


class Dumper(yaml.CSafeDumper):
    """Quotes every text that the loader above would not read as text."""

    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


def dump(data: Any, *, only_ascii: bool = False) -> str:
    """Plain data as YAML that reads back as the same data; with `only_ascii` every other character is escaped."""
    text = yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=not only_ascii)
    assert isinstance(text, str)
    return text


Place = tuple[int, int]
"""Line and column, counted from 1."""
_STEP = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")


class Positions:
    """Where the fields of a text stand. For a text that `load_documents` could read."""

    def __init__(self, text: str) -> None:
        roots = yaml.compose_all(text, Loader=_Loader)
        self._documents = [root for root in roots if root is not None and root.tag != "tag:yaml.org,2002:null"]

    def find(self, document: int, path: str) -> Place:
        """The place of a field such as `spec.containers[0].resources.limits[cpu]`, or of its nearest parent that is
        written there; a key's place is the key."""
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
        return mark.line + 1, mark.column + 1


def load_documents(text: str, source: str = "") -> list[Any]:
    """All non-empty documents of a YAML or JSON stream as plain data. Raises a one-line `InputError`."""
    if len(text) > MAX_BYTES:
        raise InputError(f"is {len(text)} bytes long", source=source, remedy=f"at most {MAX_BYTES} are read")
    documents: list[Any] = []
    loader = _Loader(text)
    try:
        while loader.check_data():  # type: ignore[no-untyped-call]
            documents.append(loader.get_data())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1} column {mark.column + 1}: " if mark is not None else ""
        problem = (error.problem or str(error)).split("\n")[0]
        raise InputError(f"is not valid YAML: {place}{problem}", source=source, document=len(documents)) from None
    except yaml.YAMLError as error:
        raise InputError(f"is not valid YAML: {str(error).splitlines()[0]}", source=source) from None
    except InputError as error:
        raise error.at(source=source, document=len(documents)) from None
    except (RecursionError, ValueError, TypeError) as error:
        raise InputError(f"is not valid YAML: {error}", source=source, document=len(documents)) from None
    finally:
        loader.dispose()
    for index, document in enumerate(documents):
        _check_size(document, source, index)
    return [document for document in documents if document is not None]


def _check_size(document: Any, source: str, index: int) -> None:
    count = 0
    level = [document]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value.values()
            elif isinstance(value, list):
                below += value
        count += len(below)
        if count > MAX_NODES:
            raise InputError("expands to too many values", source=source, document=index, remedy="remove the aliases")
        if not below:
            return
        level = below
    raise InputError(f"is nested deeper than {MAX_DEPTH} levels", source=source, document=index)
