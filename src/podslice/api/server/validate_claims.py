"""Validation of resource claims by the API server: the claims a pod names, and those its containers refer to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from podslice.api.pod.field_error import FieldError, duplicate, invalid, not_found, required
from podslice.api.pod.names import label_problems
from podslice.api.pod.spec import PodSpec, ResourceRequirements

_AMONG = "must be one of the names in pod.spec.resourceClaims"


def pod_claim_errors(spec: PodSpec) -> Iterator[FieldError]:
    """Yield the errors in the names of `spec.resourceClaims`; the claims themselves are not looked up."""
    seen: set[str] = set()
    for index, claim in enumerate(spec.resource_claims):
        path = f"spec.resourceClaims[{index}].name"
        if not claim.name:
            yield required(path)
            continue
        for problem in label_problems(claim.name):
            yield invalid(path, claim.name, problem)
        if claim.name in seen:
            yield duplicate(path, claim.name)
        seen.add(claim.name)


def claim_errors(resources: ResourceRequirements, path: str, names: Collection[str]) -> Iterator[FieldError]:
    """Yield the errors in the claims of a stanza at `path`: each must be one of the pod's `names`, used once as a whole
    or once per request."""
    known = sorted({name for name in names if name})
    seen: set[tuple[str, str]] = set()
    for index, claim in enumerate(resources.claims or ()):
        name, request = _name_and_request(claim)
        here = f"{path}.claims[{index}]"
        if not name:
            yield required(here)
            continue
        if (name, "") in seen:
            yield duplicate(here, name)
        elif request:
            for problem in label_problems(request):
                yield invalid(f"{here}.request", request, problem)
            if (name, request) in seen:
                yield duplicate(here, f"{name}/{request}")
        else:
            # A claim taken as a whole contains every request that was named before.
            yield from (duplicate(here, name) for taken, _ in seen if taken == name)
        seen.add((name, request))
        if name not in known:
            yield not_found(here, name, f"{_AMONG}: {', '.join(known)}" if known else f"{_AMONG} which is empty")


def _name_and_request(claim: Mapping[str, Any]) -> tuple[str, str]:
    return str(claim.get("name") or ""), str(claim.get("request") or "")
