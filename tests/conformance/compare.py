"""One pod: what the API server answers to a dry run, and what `podslice inspect` says about the same text."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from e2e.controlplane import Answer, Api

from podslice.advise.inspect.build import inspect_pod
from podslice.advise.inspect.page import Amounts
from podslice.api.manifests.manifest import load_pods_text
from podslice.api.pod.spec import Container, Pod, ResourceRequirements, pod_from_dict
from podslice.api.server.create import as_stored, prepare_for_create
from podslice.api.server.decode import decode_error
from podslice.api.server.defaults import default_pod
from podslice.api.server.limitrange import LimitRange, apply_defaults
from podslice.values.errors import InputError
from podslice.values.gates import FeatureGates, later_gates
from podslice.values.quirks import PROFILES

Json = dict[str, Any]
PROFILE = PROFILES["kubelet-1.36"]


class Said(NamedTuple):
    """An answer to a pod in the words that both sides have. `verdict` is accepted, invalid, forbidden or unreadable;
    `errors` are texts of the verdict; the rest is what an accepted pod becomes."""

    verdict: str
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    qos: str = ""
    fields: Mapping[str, Any] = {}


class Difference(NamedTuple):
    what: str
    server: Any
    ours: Any


def gates_of(overrides: Mapping[str, bool]) -> FeatureGates:
    return FeatureGates.from_overrides(overrides, fixes=later_gates(PROFILE))


def server_says(api: Api, pod: Json, namespace: str = "default") -> Said:
    """A dry run."""
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Warn"
    answer = api.ask("POST", path, pod)
    if answer.code == 201:
        kept = pod_from_dict(answer.body)
        warnings = tuple(sorted(answer.warnings))
        return Said("accepted", (), warnings, kept.status.qos_class, fields(kept))
    verdict = {422: "invalid", 403: "forbidden", 400: "unreadable"}.get(answer.code, str(answer.code))
    return Said(verdict, causes(answer) if answer.code == 422 else (answer.message,))


def causes(answer: Answer) -> tuple[str, ...]:
    """The errors of an answer 422, each as `field: sentence`."""
    details = answer.body.get("details") or {}
    return tuple(sorted(f"{one.get('field', '')}: {one['message']}" for one in details.get("causes") or ()))


def podslice_says(pod: Json, gates: FeatureGates, limit_ranges: Sequence[LimitRange] = ()) -> Said:
    """`podslice inspect --profile kubelet-1.36 -o json` on the pod's text."""
    try:
        (loaded,) = load_pods_text(json.dumps(pod), "pod.json", validate=False)
    except InputError as error:
        return Said("unreadable", (decode_error(pod) or str(error),))
    page = inspect_pod(loaded.pod, gates, PROFILE, data=loaded.data, limit_ranges=limit_ranges)
    if page.errors:
        return Said("invalid", tuple(sorted(page.errors)))
    if page.refusals:
        return Said("forbidden", page.refusals)
    warnings = tuple(sorted((*page.warnings, *map(str, loaded.unknown_fields))))
    kept = kept_pod(loaded.pod, gates, limit_ranges)
    shown = {**fields(kept), **_page_fields(page.amounts)}
    return Said("accepted", (), warnings, page.qos.qos_class, shown)


def kept_pod(pod: Pod, gates: FeatureGates, limit_ranges: Sequence[LimitRange] = ()) -> Pod:
    """The pod as it is read back after it was created."""
    filled = apply_defaults(default_pod(pod, gates), limit_ranges, gates)
    return default_pod(as_stored(prepare_for_create(filled, gates)), gates)


def fields(pod: Pod) -> dict[str, Any]:
    """Return the fields of a pod that concern resources, by field path; only those that are there."""
    spec = pod.spec
    found: dict[str, Any] = {f"spec.overhead[{name}]": str(amount) for name, amount in (spec.overhead or {}).items()}
    if spec.resources is not None:
        found["spec.resources"] = "is there"
        found |= _stanza("spec.resources", spec.resources)
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            found |= _container(f"spec.{field}[{index}]", container)
    note = (pod.metadata.annotations or {}).get("kubernetes.io/limit-ranger")
    return found | ({"limit-ranger": note} if note else {})


def _container(path: str, container: Container) -> dict[str, Any]:
    found = _stanza(f"{path}.resources", container.resources)
    found[f"{path}.name"] = container.name
    found[f"{path}.restartPolicy"] = container.restart_policy
    found[f"{path}.resizePolicy"] = msgspec.to_builtins(container.resize_policy)
    return found


def _stanza(path: str, resources: ResourceRequirements) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for side, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        found |= {f"{path}.{side}[{name}]": str(amount) for name, amount in (amounts or {}).items()}
    return found | ({f"{path}.claims": resources.claims} if resources.claims else {})


def _page_fields(rows: Sequence[Amounts]) -> dict[str, Any]:
    """The amounts that the page shows."""
    found = {}
    for row in rows:
        for side, value in (("requests", row.request), ("limits", row.limit)):
            if row.resource and value.becomes:
                path = row.path if row.kind == "overhead" else f"{row.path}.{side}"
                found[f"{path}[{row.resource}]"] = value.becomes
    return found


def differences(server: Said, ours: Said) -> list[Difference]:
    """Return the differences between the two; for a pod that is refused only in the reason."""
    if server.verdict != ours.verdict:
        return [Difference("verdict", server[:2], ours[:2])]
    if server.verdict == "unreadable":
        return [] if ours.errors[0] in server.errors[0] else [Difference("decoding", server.errors, ours.errors)]
    if server.verdict == "forbidden":
        same = set(refusals(server.errors[0])) == {text.partition(": ")[2] for text in ours.errors}
        return [] if same else [Difference("refusals", server.errors, ours.errors)]
    found = [
        Difference(name, *_unlike(Counter(mine), Counter(theirs)))
        for name, mine, theirs in (("errors", server.errors, ours.errors), ("warnings", server.warnings, ours.warnings))
        if Counter(mine) != Counter(theirs)
    ]
    if server.qos != ours.qos:
        found.append(Difference("qosClass", server.qos, ours.qos))
    found += [
        Difference(path, server.fields.get(path), ours.fields.get(path))
        for path in sorted({*server.fields, *ours.fields})
        if server.fields.get(path) != ours.fields.get(path)
    ]
    return found


def _unlike(one: Counter[str], other: Counter[str]) -> tuple[list[str], list[str]]:
    return sorted((one - other).elements()), sorted((other - one).elements())


def refusals(message: str) -> list[str]:
    """The texts in `pods "x" is forbidden: [a, b]`."""
    _, _, listed = message.partition(" is forbidden: ")
    inner = listed.removeprefix("[").removesuffix("]") if listed.startswith("[") else listed
    return re.split(r", (?=minimum |maximum |\S+ max limit)", inner)
