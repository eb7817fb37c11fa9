"""JSON as Go reads and writes it."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podslice.node.cpu import checkpoint as checkpoint_cpu
from podslice.node.memory import checkpoint as checkpoint_memory
from podslice.values.go import gofault, gojson
from podslice.values.go.gofault import syntax_error
from podslice.values.go.gojson import CheckpointError, dump_string, dump_value, parse

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)

_END = "unexpected end of JSON input"
_VALUE = "looking for beginning of value"
_FAULTS = {
    "": _END,
    "  ": _END,
    "{": _END,
    '{"a"': _END,
    '{"a":1,': _END,
    '"abc': _END,
    '{"a":1,}': "invalid character '}' looking for beginning of object key string",
    "{a:1}": "invalid character 'a' looking for beginning of object key string",
    '{"a" 1}': "invalid character '1' after object key",
    '{"a":1 "b"}': "invalid character '\"' after object key:value pair",
    "[1 2]": "invalid character '2' after array element",
    "[,": f"invalid character ',' {_VALUE}",
    "{'a':1}": "invalid character '\\'' looking for beginning of object key string",
    "tru": "invalid character ' ' in literal true (expecting 'e')",
    "nulx": "invalid character 'x' in literal null (expecting 'l')",
    "NaN": f"invalid character 'N' {_VALUE}",
    "-Infinity": "invalid character 'I' in numeric literal",
    "-": "invalid character ' ' in numeric literal",
    "1.x": "invalid character 'x' after decimal point in numeric literal",
    "1e+": "invalid character ' ' in exponent of numeric literal",
    "01": "invalid character '1' after top-level value",
    '"a\\q"': "invalid character 'q' in string escape code",
    '"\\u12x4"': "invalid character 'x' in \\u hexadecimal character escape",
    '"a\nb"': "invalid character '\\n' in string literal",
    "é": f"invalid character 'Ã' {_VALUE}",
    "[" * 10_001: "invalid character '[' exceeded max depth",
}


@pytest.mark.parametrize(("text", "fault"), _FAULTS.items(), ids=[text[:12] or "empty" for text in _FAULTS])
def test_faults_are_named_as_go_names_them(text: str, fault: str) -> None:
    """Broken JSON is refused with Go's message."""
    assert syntax_error(text) == fault


@given(_JSON)
@pytest.mark.slow
def test_valid_json_has_no_fault(value: object) -> None:
    """Whatever the standard library writes is valid, and survives parsing and writing."""
    text = json.dumps(value)
    assert syntax_error(text) == ""
    assert json.loads(dump_value(parse(text.encode("utf-8", errors="surrogatepass")))) == _clean(value)


def _clean(value: object) -> object:
    """Lone surrogates become U+FFFD; of repeated keys that arise the last one counts."""
    text = json.dumps(value, ensure_ascii=False).encode("utf-16", errors="surrogatepass").decode("utf-16", "replace")
    return json.loads(text)


@given(st.binary(max_size=60))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    """Reading bytes ends in a value or in a typed error with words."""
    try:
        parse(data)
        words = "a value"
    except CheckpointError as error:
        words = str(error)
    assert words


def test_go_escapes() -> None:
    """HTML characters and line separators are escaped, other text is not."""
    assert dump_string('<a>&"\\\u2028\u2029é\b\f\n\x01') == (
        '"\\u003ca\\u003e\\u0026\\"\\\\\\u2028\\u2029é\\b\\f\\n\\u0001"'
    )


_TYPES = {
    '{"policyName":1}': "json: cannot unmarshal number into Go struct field %s.policyName of type string",
    '{"entries":[]}': "json: cannot unmarshal array into Go struct field %s.entries of type map[string]"
    "map[string]string",
    '{"entries":{"p":"x"}}': "json: cannot unmarshal string into Go struct field %s.entries of type map[string]string",
    '{"checksum":-1}': "json: cannot unmarshal number -1 into Go struct field %s.checksum of type checksum.Checksum",
    '{"checksum":1.5}': "json: cannot unmarshal number 1.5 into Go struct field %s.checksum of type checksum.Checksum",
    "[]": "json: cannot unmarshal array into Go value of type state.%s",
}


@pytest.mark.parametrize(("text", "message"), _TYPES.items(), ids=list(_TYPES))
def test_wrong_types_are_named_as_go_names_them(text: str, message: str) -> None:
    """A member of a wrong type is refused with Go's message, naming the version's type."""
    with pytest.raises(CheckpointError) as caught:
        checkpoint_cpu.decode(text.encode(), "v2")
    assert str(caught.value) == message % "CPUManagerCheckpointV2"


def test_wrong_types_deep_inside_name_the_inner_struct() -> None:
    """The message names the struct that has the field and the path from the top."""
    with pytest.raises(CheckpointError) as caught:
        checkpoint_memory.decode(b'{"machineState":{"0":{"memoryMap":{"memory":{"free":"x"}}}}}')
    assert str(caught.value) == (
        "json: cannot unmarshal string into Go struct field MemoryTable.machineState.memoryMap.free of type uint64"
    )


def test_go_is_tolerant_when_reading() -> None:
    """Case of keys does not matter, unknown keys are ignored, repeated maps add up, null is absent."""
    text = b'{"POLICYNAME":"static","x":[1],"entries":{"p":{"a":"1"}},"Entries":{"q":null},"defaultCpuSet":null}'
    checkpoint = checkpoint_cpu.decode(text, "v2")
    assert checkpoint.policy_name == "static"
    assert checkpoint.entries == {"p": {"a": "1"}, "q": None}
    assert checkpoint_cpu.decode(b'{"entries":null}', "v2").entries is None


@pytest.mark.parametrize(
    "text",
    [b'"' + b"\\\\" * 200_000, b'"' + b"\\u0041" * 100_000, b"[" * 9000 + b"]" * 8999, b"[" + b"[]," * 160_000],
    ids=["escapes", "code points", "open", "many"],
)
def test_faults_are_found_in_few_steps(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken text of any kind is refused after few steps of the slow scanner, many values before any."""
    steps = 0
    slow = gofault._match

    def counted(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
        nonlocal steps
        steps += 1
        return slow(pattern, data, at)

    monkeypatch.setattr(gofault, "_match", counted)
    monkeypatch.setattr(gojson, "MOST_VALUES", 150_000)
    with pytest.raises(CheckpointError):
        parse(text)
    assert steps < 60_000
