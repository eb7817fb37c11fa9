"""Decodes pods in the protobuf of a kubelet's local Pods API, without envelope, kind and version.

Only fields that concern resources are decoded; they become the JSON that an API server would send, so that every pod
passes the same checks and bounds wherever it comes from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from google.protobuf.message import DecodeError

from podslice.service.answers import ApiError
from podslice.service.podlist import KnownPod, read_known_pod
from podslice.service.proto import podsapi_pb2 as api

ENDED = ("Succeeded", "Failed")


def pod_message(data: bytes) -> api.Pod:
    """Decode one pod. Raises `ApiError`."""
    try:
        return api.Pod.FromString(data)
    except DecodeError:
        raise ApiError("a pod is not what the Pods API sends: it cannot be decoded") from None


def known_from(pod: api.Pod) -> KnownPod:
    """Convert a decoded pod. A kubelet reports static pods themselves, under the UID of their sandboxes, never their
    mirror pods.

    Raises `ApiError` when the name cannot be used; any other defect becomes a refusal of the pod.
    """
    metadata = {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid}
    return read_known_pod(msgspec.json.encode({"metadata": metadata, "spec": _spec(pod.spec)}), node="")


def _spec(spec: api.Spec) -> dict[str, Any]:
    return _without_empty(
        containers=[_container(one) for one in spec.containers],
        initContainers=[_container(one) for one in spec.init_containers],
        ephemeralContainers=[_container(one.common) for one in spec.ephemeral_containers],
        resources=_resources(spec.resources),
        overhead=_amounts(spec.overhead.items()),
        priority=spec.priority if spec.HasField("priority") else None,
        priorityClassName=spec.priority_class_name,
        os={"name": spec.os.name} if spec.os.name else None,
        resourceClaims=[
            _without_empty(
                name=one.name,
                resourceClaimName=one.resource_claim_name,
                resourceClaimTemplateName=one.resource_claim_template_name,
            )
            for one in spec.resource_claims
        ],
    )


def _container(container: api.Container) -> dict[str, Any]:
    policies = [
        {"resourceName": one.resource_name, "restartPolicy": one.restart_policy} for one in container.resize_policy
    ]
    rest = _without_empty(
        resources=_resources(container.resources), restartPolicy=container.restart_policy, resizePolicy=policies
    )
    return {"name": container.name, **rest}


def _resources(resources: api.Resources) -> dict[str, Any]:
    return _without_empty(
        limits=_amounts(resources.limits.items()),
        requests=_amounts(resources.requests.items()),
        claims=[_without_empty(name=one.name, request=one.request) for one in resources.claims],
    )


def _amounts(amounts: Iterable[tuple[str, api.Quantity]]) -> dict[str, str]:
    return {name: amount.string or "0" for name, amount in amounts}


def _without_empty(**fields: Any) -> dict[str, Any]:
    """Return the fields that were sent: protobuf omits empty ones, but a number that was sent stays, zero too."""
    return {name: value for name, value in fields.items() if value is not None and value not in ("", [], {})}
