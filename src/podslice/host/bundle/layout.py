"""The files of a bundle, by name.

    bundle.json                 the manifest: which node, when, by what, and what is missing
    sys/ proc/                  what discovery reads of the machine
    kubelet/                    state files, and a folder pods/UID for each pod that the kubelet knows
    kubelet/config.yaml         the file that the kubelet loads, kubelet/config.d/*.conf its drop-ins
    kubelet/podresources.json   what the kubelet's PodResources API answers
    kubelet/cmdline             those of its flags that concern its configuration, as in /proc/PID/cmdline
    api/                        objects of the API server

An archive may have all of it in one folder.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from podslice.evidence.pod_resources import POD_RESOURCES_FILE
from podslice.node.checkpoints.names import (
    ACTUATED_STATE_FILE,
    ALLOCATED_STATE_FILE,
    CLAIM_STATE_FILE,
    GUARD_STATE_FILE,
    MANAGER_STATE_FILES,
    POLICY_STATE_FILE,
    STATUS_STATE_FILE,
    place_of,
)
from podslice.values.errors import InputError

MANIFEST: Final = "bundle.json"
KUBELET: Final = "kubelet"
PODS_FOLDER: Final = "pods"
KUBELET_CONFIG: Final = f"{KUBELET}/config.yaml"
DROP_INS: Final = f"{KUBELET}/config.d"
COMMAND_LINE: Final = f"{KUBELET}/cmdline"
CONFIGURATION: Final = (KUBELET_CONFIG, DROP_INS, COMMAND_LINE)
"""Parts that a running kubelet's answer, `CONFIGZ`, has in it."""
POD_RESOURCES: Final = f"{KUBELET}/{POD_RESOURCES_FILE}"
STATE_FILES: Final = (
    *map(place_of, MANAGER_STATE_FILES),
    ALLOCATED_STATE_FILE,
    ACTUATED_STATE_FILE,
    STATUS_STATE_FILE,
    CLAIM_STATE_FILE,
    POLICY_STATE_FILE,
    GUARD_STATE_FILE,
)
"""State files below the kubelet's folder."""

NODE: Final = "api/node.json"
TOPOLOGY: Final = "api/noderesourcetopology.json"
MACHINE: Final = "api/machine.json"
"""The machine as an agent on the node knows it."""
CONFIGZ: Final = "api/configz.json"
PODS: Final = "api/pods.json"
EVENTS: Final = "api/events.json"
SLICES: Final = "api/resourceslices.json"
CLAIMS: Final = "api/resourceclaims.json"
CLASSES: Final = "api/deviceclasses.json"
DEVICES: Final = "api/devices.json"
POLICY: Final = "api/policy.json"
API_FILES: Final = (NODE, TOPOLOGY, MACHINE, CONFIGZ, PODS, EVENTS, SLICES, CLAIMS, CLASSES, DEVICES, POLICY)
FILES: Final = frozenset(
    (MANIFEST, KUBELET_CONFIG, COMMAND_LINE, POD_RESOURCES, *(f"{KUBELET}/{name}" for name in STATE_FILES), *API_FILES)
)
"""All files beside `sys/`, `proc/` and drop-ins. Others in an archive are passed over."""
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}"
_DROP_IN = re.compile(rf"{DROP_INS}/(?:{_PART}/)?{_PART}\.conf")

LARGEST: Final = 48 << 20
"""Bytes of all these files together."""
MOST_PODS: Final = 10_000
MOST_DROP_INS: Final = 1000
_LARGEST_MANIFEST = 1 << 20


FORMAT: Final = 1


def is_drop_in(name: str) -> bool:
    """Whether a name of a file is that of a drop-in."""
    return _DROP_IN.fullmatch(name) is not None


class Missing(NamedTuple):
    """A part of a bundle that could not be had, and the reason."""

    part: str
    reason: str


class Manifest(msgspec.Struct, frozen=True):
    """The origin of a bundle. `captured` is a time in RFC 3339, `by` the program that wrote it; both may be empty."""

    node: str = ""
    captured: str = ""
    by: str = ""
    missing: tuple[Missing, ...] = ()
    format: int = FORMAT


def read_manifest(data: bytes, source: str) -> Manifest:
    """Decode a manifest. Raises `InputError`."""
    try:
        if len(data) > _LARGEST_MANIFEST:
            raise ValueError("is too large")
        found = msgspec.json.decode(data, type=Manifest)
        if found.format > FORMAT:
            raise ValueError(f"format {found.format} is of a newer podslice")
        return found
    except (ValueError, RecursionError) as error:
        raise InputError(str(error), source=f"{source}/{MANIFEST}", remedy="podslice capture writes one") from None
