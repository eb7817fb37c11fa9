"""Configurations that a real kubelet of v1.36.2 was started with, and what became of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podslice import InputError, KubeletConfig, Node, StartError
from podslice.config.carriers.layer import API_VERSION, KIND, ConfigDocument
from podslice.config.carriers.recognize import read_document
from podslice.config.kubelet_file import config_from_fields, load_document
from podslice.config.schema import field_names
from podslice.config.validation import validate
from podslice.machine.readers.synthetic import from_synthetic
from podslice.reading.yaml import dump
from podslice.values.gates import FeatureGates, GateError

_LINES = list(map(json.loads, (Path(__file__).parent / "data/configurations.jsonl").read_text().splitlines()))
_HEAD, *_RECORDED = _LINES
_MACHINE = from_synthetic("pack:1 numa:1(memory=24GiB) core:2 pu:1")
_MARK = "KubeletConfiguration:\n"


def _text(recorded: str) -> str:
    body = recorded.removeprefix(_MARK)
    given = {line.split(":")[0] for line in body.splitlines()}
    beside = [line for line in _HEAD["beside"].splitlines(keepends=True) if line.split(":")[0] not in given]
    return recorded if body == recorded else "".join([_HEAD["head"], body, *beside])


def _outcome(text: str) -> tuple[str, list[str]]:
    """The step at which a kubelet ends with a text, and its errors."""
    try:
        config = load_document(read_document(text)).config
    except InputError as error:
        return "decode", [error.problem]
    try:
        FeatureGates.from_overrides(config.feature_gates, other_gates_allowed=False)
    except GateError as error:
        return "gates", sorted(error.problems)
    found = sorted({str(problem) for problem in validate(config)})
    if found:
        return ("run" if found[0].startswith("--") else "validate"), found
    try:
        Node(_MACHINE, config, profile="kubelet-1.36")
    except StartError as error:
        return "run", [error.message]
    return "", []


@pytest.mark.parametrize("recorded", _RECORDED, ids=range(1, len(_RECORDED) + 1))
def test_a_kubelet_ends_with_the_same_words(recorded: dict[str, Any]) -> None:
    """Decoding, gates, values and amounts: the same step ends the kubelet, with the same errors."""
    ends, errors = _outcome(_text(recorded["text"]))
    assert ends == recorded["ends"]
    # What keeps a file from being a configuration at all is said in our words.
    if not (ends == "decode" and re.search(r"is not|holds", errors[0])):
        assert errors == recorded["errors"]


def test_the_table_is_whole() -> None:
    """The recordings hold every step, and many of each."""
    steps = [recorded["ends"] for recorded in _RECORDED]
    assert {step: steps.count(step) >= 19 for step in steps} == dict.fromkeys(
        ("", "decode", "gates", "run", "validate"), True
    )


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12)
    | st.sampled_from(["", "0", "5", "5s", "-1", "5%", "1Gi", "yes", "static", "Static", "None", "1e400", "0x10"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(field_names()), _JSON, min_size=1, max_size=4), st.booleans())
@settings(max_examples=400, deadline=None)
@pytest.mark.slow
def test_any_value_is_taken_or_refused_in_one_line(fields: dict[str, Any], as_json: bool) -> None:
    """Wrong types and odd texts in every field: a configuration, or errors of one line each with path and message."""
    document = {"apiVersion": API_VERSION, "kind": KIND, **fields}
    text = json.dumps(document) if as_json else dump(document, only_ascii=True)
    ends, errors = _outcome(text)
    assert bool(ends) == bool(errors)
    assert all(error and "\n" not in error for error in errors)
    if ends == "decode":
        return
    config = load_document(read_document(text)).config
    assert load_document(ConfigDocument({**document, **config.document()})).config == config


@pytest.mark.parametrize("field", field_names())
def test_every_field_refuses_another_type(field: str) -> None:
    """No field takes a list of lists of numbers, and the error names it."""
    with pytest.raises(InputError) as caught:
        config_from_fields({field: [[1]]})
    assert caught.value.path.startswith(field)
    assert caught.value.problem.startswith("json: cannot unmarshal")
    assert f".{field} of type" in caught.value.problem


def test_problems_have_a_remedy() -> None:
    """The first problem is the one that a kubelet reports; the remedy says what to write."""
    with pytest.raises(InputError) as caught:
        config_from_fields(
            {"port": "10250", "kubeReserved": {"cpu": 1}, "syncFrequency": 60, "clusterDNS": "10.0.0.10"}
        )
    assert [(error.path, error.remedy) for error in caught.value.errors] == [
        ("clusterDNS", "write a list: [10.0.0.10]"),
        ("kubeReserved[cpu]", 'put it in quotes: "1"'),
        ("port", "write it without quotes: 10250"),
        ("syncFrequency", 'write "60s"'),
    ]


def test_what_a_kubelet_reads_past_is_a_warning() -> None:
    """Of a key that is there twice the last value counts, of several documents the first."""
    text = f"apiVersion: {API_VERSION}\nkind: {KIND}\nmaxPods: 5\nmaxPods: 6\n---\nmaxPods: 7\n"
    loaded = load_document(read_document(text))
    assert loaded.config.max_pods == 6
    assert loaded.warnings == (
        "maxPods is there more than once; the last one counts",
        "only the first of 2 documents is read",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"kind": "KubeletConfiguration", "maxPods": 5,}', "is not valid JSON: Expecting property name"),
        ('{"kind": "KubeletConfiguration"} {}', "is not valid JSON: Extra data"),
        ('{"kind": "KubeletConfiguration", "maxPods": NaN}', "is not valid JSON: NaN is not a number"),
    ],
)
def test_json_is_read_as_json(text: str, problem: str) -> None:
    """Text that begins with a brace is JSON to a kubelet, without YAML's freedoms."""
    with pytest.raises(InputError) as caught:
        read_document(text)
    assert caught.value.problem.startswith(problem)


def test_zero_values_are_defaults() -> None:
    """An empty text, 0 and null are a field that is left out, where a kubelet defaults them."""
    empty: dict[str, Any] = {
        "cpuManagerPolicy": "", "memoryManagerPolicy": "", "topologyManagerPolicy": "", "topologyManagerScope": "",
        "memoryReservationPolicy": "", "maxPods": 0, "cpuManagerReconcilePeriod": "0s", "podPidsLimit": -7,
        "kubeReserved": None, "evictionHard": None, "cpuCFSQuota": None, "cpuCFSQuotaPeriod": None,
    }  # fmt: skip
    assert config_from_fields(empty).config == KubeletConfig()
    assert KubeletConfig(max_pods=0, topology_manager_policy="") == KubeletConfig()
