"""JSON as Go's encoding/json writes and reads it, as far as it shows in state files (spec cpu-topology 8.3).

Checksums make every byte count: key order, escapes and spacing must be Go's. When reading, keys match without regard
to case and the errors of wrong types or broken syntax are part of what a kubelet reports.
"""

from __future__ import annotations

import json
import re
from typing import Any

from podslice.core.errors import PodsliceError

_ESCAPED = re.compile("[<>&\u2028\u2029]")
_WHITESPACE = " \t\r\n"
_NUMBER_START = "-0123456789"


class CheckpointError(PodsliceError):
    """A state file that cannot be used; the text is upstream's."""


CORRUPT = "checkpoint is corrupted"


def dump_string(text: str) -> str:
    """A JSON string with Go's HTML-safe escapes."""
    plain = json.dumps(text, ensure_ascii=False)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", plain)


def dump_map(members: dict[str, str]) -> str:
    """An object from already encoded values, keys in byte order."""
    inner = ",".join(f"{dump_string(key)}:{members[key]}" for key in sorted(members, key=lambda k: k.encode()))
    return f"{{{inner}}}"


def load_object(data: bytes) -> dict[str, Any]:
    """The top-level object of a file, keys lower-cased. Raises `CheckpointError` with Go's syntax error."""
    text = data.decode("utf-8", errors="replace")
    problem = syntax_error(text)
    if problem:
        raise CheckpointError(problem)
    value = json.loads(text, strict=False)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CheckpointError(f"json: cannot unmarshal {kind_of(value)} into Go value of type state.checkpoint")
    return {key.lower(): member for key, member in value.items()}


def kind_of(value: Any) -> str:
    """Go's name for a JSON value's type."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    return "array" if isinstance(value, list) else "object"


def typed(value: Any, expected: type, struct: str, field: str, go_type: str) -> Any:
    """`value` if it is of the expected type. Raises `CheckpointError` as Go reports a mismatch."""
    if isinstance(value, expected) and (expected is bool or not isinstance(value, bool)):
        return value
    shown = kind_of(value)
    if shown == "number" and expected is int:
        shown = f"number {value}"
    raise CheckpointError(f"json: cannot unmarshal {shown} into Go struct field {struct}.{field} of type {go_type}")


def syntax_error(text: str) -> str:
    """Go's message for broken JSON, empty for valid text."""
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except _ConstantError as constant:
        return _invalid(str(constant)[:1], "looking for beginning of value")
    except json.JSONDecodeError as error:
        return _describe(text, error)
    except RecursionError:
        return "exceeded max depth"
    return ""


class _ConstantError(Exception):
    pass


def _refuse_constant(name: str) -> None:
    raise _ConstantError(name)


def _describe(text: str, error: json.JSONDecodeError) -> str:
    position = error.pos
    if error.msg.startswith(("Unterminated string", "Invalid \\escape", "Invalid \\u")):
        return "unexpected end of JSON input"
    while position < len(text) and text[position] in _WHITESPACE:
        position += 1
    if position >= len(text):
        return "unexpected end of JSON input"
    char = text[position]
    if error.msg == "Extra data":
        return _extra_data(text, position, char)
    if error.msg.startswith("Expecting property name"):
        return _invalid(char, "looking for beginning of object key string")
    if error.msg.startswith("Expecting ':'"):
        return _invalid(char, "after object key")
    if error.msg.startswith("Expecting ','"):
        container = "object key:value pair" if _inside_object(text, position) else "array element"
        return _invalid(char, f"after {container}")
    if error.msg.startswith("Invalid control character"):
        return _invalid(char, "in string literal")
    return _literal_problem(text, position, char)


def _extra_data(text: str, position: int, char: str) -> str:
    following = text[position + 1 : position + 2] or " "
    before = text[position - 1 : position]
    if char == "." and before.isdigit() and not following.isdigit():
        return _invalid(following, "after decimal point in numeric literal")
    if char in "eE" and before.isdigit() and following not in "+-" and not following.isdigit():
        return _invalid(following, "in exponent of numeric literal")
    return _invalid(char, "after top-level value")


def _literal_problem(text: str, position: int, char: str) -> str:
    for literal in ("true", "false", "null"):
        if literal[0] == char:
            rest = text[position:]
            for index, wanted in enumerate(literal):
                if index >= len(rest):
                    return "unexpected end of JSON input"
                if rest[index] != wanted:
                    return _invalid(rest[index], f"in literal {literal} (expecting {_quoted(wanted)})")
    if char == "-":
        return _invalid(text[position + 1 : position + 2] or " ", "in numeric literal")
    return _invalid(char, "looking for beginning of value")


def _inside_object(text: str, position: int) -> bool:
    depth: list[str] = []
    in_string = False
    index = 0
    while index < position:
        char = text[index]
        if in_string:
            if char == "\\":
                index += 1
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "{[":
            depth.append(char)
        elif char in "}]" and depth:
            depth.pop()
        index += 1
    return bool(depth) and depth[-1] == "{"


def _invalid(char: str, where: str) -> str:
    return f"invalid character {_quoted(char)} {where}"


def _quoted(char: str) -> str:
    if char == "'":
        return "'\\''"
    if char == '"':
        return "'\"'"
    if char.isprintable():
        return f"'{char}'"
    return f"'\\x{ord(char):02x}'" if ord(char) < 0x80 else f"'\\u{ord(char):04x}'"
