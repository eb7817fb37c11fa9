"""Lists as kubectl, client-go and the API server write them, and objects of an older version."""

from __future__ import annotations

import json
from typing import Any

import pytest

from podslice import load_pods
from podslice.dra.v1beta1 import convert_v1beta1
from podslice.node_objects.read_object import read_described_node
from podslice.reading.lists import flatten_lists
from podslice.reading.yaml import load_documents
from podslice.values.errors import InputError

POD: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
NODE: dict[str, Any] = {"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "8", "memory": "32Gi"}}}


def test_items_of_a_typed_list_get_its_kind() -> None:
    """The API server leaves kind and version out of items; lists may hold lists."""
    inner = {"kind": "PodList", "apiVersion": "v1", "items": [POD]}
    found = list(flatten_lists({"kind": "List", "apiVersion": "v1", "items": [inner, {"kind": "Service"}]}))
    assert found == [{"kind": "Pod", "apiVersion": "v1", **POD}, {"kind": "Service"}]


def test_items_without_a_kind_are_a_list() -> None:
    """A list that lost its kind on the way is still one."""
    assert list(flatten_lists({"items": [{"kind": "Pod"}]})) == [{"kind": "Pod"}]


def test_a_node_list_of_one_is_a_node() -> None:
    """`kubectl get --raw /api/v1/nodes` of a cluster with one node."""
    found = read_described_node([{"kind": "NodeList", "apiVersion": "v1", "items": [NODE]}], "nodes.json")
    assert found.machine.name == "n1"


@pytest.mark.parametrize("between", ["", "\n", "\n\n  "])
def test_json_values_after_each_other(between: str, tmp_path: Any) -> None:
    """jq writes several values without a separator."""
    texts = [json.dumps({"kind": "Pod", "apiVersion": "v1", **POD}, indent=1)] * 2
    assert len(load_documents(between.join(texts))) == 2
    (tmp_path / "pods.json").write_text(between.join(texts))
    assert len(load_pods(str(tmp_path / "pods.json"))) == 2


@pytest.mark.parametrize("after", ["5", '"six"', "true", "}"])
def test_json_values_are_objects_or_arrays(after: str) -> None:
    """Anything else after a value is damage, and is refused as before."""
    assert load_documents('{"kind": "Pod"} [7]') == [{"kind": "Pod"}, [7]]
    with pytest.raises(InputError, match="is not valid YAML"):
        load_documents('{"kind": "Pod"} ' + after)


def test_v1beta1_is_v1_with_other_levels() -> None:
    """Devices lose `basic`, requests for one class get `exactly`; alternatives have the same shape in both."""
    device = {
        "name": "g0",
        "basic": {"attributes": {"type": {"string": "gpu"}}, "capacity": {"memory": {"value": "1Gi"}}},
    }
    one = convert_v1beta1({"kind": "ResourceSlice", "spec": {"driver": "d", "devices": [device]}})
    assert one["apiVersion"] == "resource.k8s.io/v1"
    assert one["spec"]["devices"] == [{"name": "g0", **device["basic"]}]  # type: ignore[dict-item]
    requests = [{"name": "r", "deviceClassName": "c", "count": 2}, {"name": "s", "firstAvailable": [{"name": "a"}]}]
    spec = {"devices": {"requests": requests}}
    expected = [{"name": "r", "exactly": {"deviceClassName": "c", "count": 2}}, requests[1]]
    assert convert_v1beta1({"kind": "ResourceClaim", "spec": spec})["spec"]["devices"]["requests"] == expected
    template = convert_v1beta1({"kind": "ResourceClaimTemplate", "spec": {"spec": spec}})
    assert template["spec"]["spec"]["devices"]["requests"] == expected
