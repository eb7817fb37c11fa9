"""Scalars of YAML mean what a kubelet of v1.36.2 was seen to make of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from podslice.agent.settings import load_settings
from podslice.config.kubelet_file import load_kubelet_config
from podslice.reading.scalars import parse_plain_scalar
from podslice.reading.yaml import dump, load_documents
from podslice.values.errors import InputError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("70_000", 70000), ("7_0000.0", 70000.0), ("0200000", 65536), ("0o200000", 65536), ("0x11170", 70000),
        ("0b10001000101110000", 70000), ("70_000_", 70000), ("+70000", 70000), ("7e4", 70000.0), ("7.0e+4", 70000.0),
        ("08", 8.0), ("0_8_70000", 870000.0), ("70000.", 70000.0), ("09.5", 9.5), ("1_", 1), ("1__0", 10),
        ("-1_0", -10), ("+_1", 1), ("-0b11", -3), ("-0x10", -16), (".5", 0.5), ("-.5", -0.5), ("5._5", 5.5),
        ("1_e3", 1000.0), ("9999999999999999999999", 1e22), ("0", 0), ("-0", 0),
    ],
)  # fmt: skip
def test_numbers(text: str, value: float) -> None:
    """Underscores are dropped, a leading 0 means octal, what does not fit 64 bits is a float."""
    number = parse_plain_scalar(text)
    assert (number, isinstance(number, float)) == (value, isinstance(value, float))


@pytest.mark.parametrize(
    "text",
    ["_70000", "1e400", "12:30:45", "2001-01-01", "0x", "0b", "0o8", "1e", "._5", "0x1p4", "Infinity", "NaN", "tRUE",
     "9" * 5000, "-", "+", ".", "1_000m"],
)  # fmt: skip
def test_texts(text: str) -> None:
    """Text that only looks like a number is text."""
    assert parse_plain_scalar(text) == text


@pytest.mark.parametrize(("text", "value"), [("y", True), ("N", False), ("On", True), ("off", False), ("~", None)])
def test_words(text: str, value: bool | None) -> None:
    """Words of YAML 1.1 are booleans and null, as a key as well."""
    assert load_documents(f"a: {text}\n{text}: 1") == [{"a": value, value: 1}]


@pytest.mark.parametrize("text", ["y", "no", "1_000", "010", "~", "", "1e3", "<<", "0x1", "12:30", "null", ".5", "- a"])
def test_dump_quotes(text: str) -> None:
    """Text that would be read as something else is written so that it is read back."""
    assert load_documents(dump({"a": text, text: 1})) == [{"a": text, text: 1}]


@pytest.mark.parametrize(
    "text", ["0000:00:03.0", "1:30", "190:20:30", ".inf", "-.INF", ".NaN", "2024-01-01", "2024-01-01T00:00:00Z", "="]
)
def test_dump_quotes_for_other_readers(text: str) -> None:
    """A reader that takes a PCI address for a number with base 60, or text for a date, reads text all the same."""
    assert yaml.safe_load(dump({"a": text, text: 1})) == {"a": text, text: 1}


def test_amounts_of_people() -> None:
    """`cpu: 1_000` is a thousand CPUs, as kubectl takes it."""
    (document,) = load_documents("{cpu: 1_000, memory: 1.5}")
    assert {name: str(amount) for name, amount in document.items()} == {"cpu": "1000", "memory": "1.5"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("image: {{ .Values.image }}", "render the template first: helm template"),
        ("{{- if .Values.on }}\na: 1\n{{- end }}", "render the template first: helm template"),
        ("? [a, b]\n: 1", "a key is an object or a list"),
        ("a: 1\na: 2", "duplicate key 'a' in line 2"),
        ('{"a": 1, "a": 2}', "duplicate key 'a'"),
        ("a: !!python/object:os.system x", "means nothing here"),
        ("a: !!int x", "means nothing here"),
        ("a: !!bool 5", "means nothing here"),
        ("a: *b", "has no anchor"),
        ("a: {<<: 5}", "<< merges mappings only"),
        ('{"a": NaN}\n', None),
    ],
)
def test_faults(text: str, problem: str | None) -> None:
    """An unreadable text gives one line that says where, and what to do."""
    if problem is None:
        assert load_documents(text) == [{"a": "NaN"}]
        return
    with pytest.raises(InputError) as caught:
        load_documents(text)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_json_is_read_as_yaml_reads_it() -> None:
    """JSON keeps the spelling of its numbers, and halves of characters become U+FFFD as in Go."""
    (document,) = load_documents('{"a": 1.50, "b": "\\ud83d\\ude00", "c": "\\ud800"}')
    assert (str(document["a"]), document["b"], document["c"]) == ("1.50", "😀", "\ufffd")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1]", "holds a list, not an object of kind {0}"),
        ("hello", "holds only 'hello', not an object of kind {0}"),
        ("", "holds nothing, not one {0}"),
        ("a: 1\n---\nb: 1", "holds 2 documents, not one {0}"),
    ],
)
def test_configurations_of_another_shape(tmp_path: Path, text: str, problem: str) -> None:
    """A file that is not a configuration is said to be none of the kind that was asked for."""
    file = tmp_path / "config.yaml"
    file.write_text(text)
    for load, kind in ((load_kubelet_config, "KubeletConfiguration"), (load_settings, "AgentConfiguration")):
        if "documents" in problem and kind == "KubeletConfiguration":
            continue  # a kubelet reads the first
        with pytest.raises(InputError) as caught:
            load(str(file))
        assert problem.format(kind) in str(caught.value)
