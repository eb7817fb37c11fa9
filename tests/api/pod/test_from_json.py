"""Pods from JSON the short way: the same pods, and the same errors, as by plain data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from podslice.api.pod.spec import Pod, pod_from_dict, pod_from_json
from podslice.values.errors import InputError


def pod(**container: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "uid": "u", "labels": {"a": "b"}, "managedFields": [{"fieldsV1": {"f:spec": {}}}]},
        "spec": {"nodeName": "n", "containers": [{"name": "c"} | container], "tolerations": [{"key": "x"}]},
        "status": {
            "phase": "Pending", "qosClass": "Guaranteed",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastProbeTime": None}],
        },
    }  # fmt: skip


AMOUNTS = {"cpu": 2, "memory": "1Gi", "nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(pod(), id="nothing asked"),
        pytest.param(pod(resources={"requests": AMOUNTS, "limits": AMOUNTS}), id="amounts"),
        pytest.param(pod(resources={"requests": {"cpu": 1.5, "memory": 1e9}}), id="numbers"),
        pytest.param(pod(resources={"requests": {"cpu": None}, "limits": None}), id="nulls"),
        pytest.param(pod(resources={"claims": [{"name": "x", "request": None}]}), id="nulls inside"),
        pytest.param(pod(env=[{"name": "A", "value": "null"}], restartPolicy="Always"), id="a text that is null"),
        pytest.param({"metadata": None, "spec": {"containers": []}}, id="no metadata"),
    ],
)
def test_same_pod(document: dict[str, Any]) -> None:
    """The pod is the one that plain data gives."""
    found = pod_from_json(json.dumps(document).encode())
    assert isinstance(found, Pod)
    assert found == pod_from_dict(document)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(pod(resources={"requests": {"cpu": "two"}}), id="no quantity"),
        pytest.param(pod(resources=[]), id="another type"),
        pytest.param({"spec": {"containers": [None]}}, id="null where something must be"),
    ],
)
def test_same_error(document: dict[str, Any]) -> None:
    """The error is the one that plain data gives, with its path."""
    with pytest.raises(InputError) as plain:
        pod_from_dict(document)
    with pytest.raises(InputError) as found:
        pod_from_json(json.dumps(document).encode())
    assert str(found.value) == str(plain.value)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000], ids=["empty", "cut", "not UTF-8", "deep"])
def test_no_json(data: bytes) -> None:
    """Text that is not JSON is one error."""
    with pytest.raises(InputError, match="cannot be read"):
        pod_from_json(data)
