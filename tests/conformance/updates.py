"""Ordinary updates of pods that a real API server stores: what it answers, and what podslice says."""

from __future__ import annotations

from e2e.controlplane import Api

from podslice.api.pod.spec import pod_from_dict
from podslice.api.server.decode import decode_error
from podslice.api.server.defaults import default_pod
from podslice.api.server.update import IMMUTABLE, prepare_for_update, validate_update
from podslice.values.errors import InputError
from podslice.values.gates import FeatureGates
from tests.conformance.compare import Json, Said, causes


def server_says_of_update(api: Api, new: Json) -> Said:
    """A dry run. What the server appends to its sentence about immutable fields, a diff, is left out."""
    metadata = new["metadata"]
    answer = api.ask("PUT", f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}?dryRun=All", new)
    if answer.code == 422:
        return Said("invalid", tuple(sorted(map(_short, causes(answer)))))
    if answer.code == 200:
        return Said("accepted")
    return Said("unreadable" if answer.code == 400 else str(answer.code), (answer.message,))


def _short(text: str) -> str:
    before, found, _ = text.partition(IMMUTABLE)
    return before + found


def podslice_says_of_update(new: Json, old: Json, gates: FeatureGates) -> Said:
    kept = default_pod(pod_from_dict(old), gates)
    try:
        asked = default_pod(pod_from_dict(new), gates)
    except InputError as error:
        return Said("unreadable", (decode_error(new) or str(error),))
    errors = validate_update(prepare_for_update(asked, kept, gates), kept, gates)
    return Said("invalid", tuple(sorted(map(str, errors)))) if errors else Said("accepted")
