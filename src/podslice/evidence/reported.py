"""The status of a Node object, against the configuration and the release that answers are about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from podslice.api.pod.demand import HUGEPAGES_PREFIX
from podslice.evidence.contradiction import Contradiction
from podslice.values.quantity import Quantity

_VERSION = re.compile(r"v?(1\.[0-9]+)(?:[.+-].*)?")
_COMPARED = ("cpu", "memory")
_SLACK = {"memory": 64 << 20}
"""Bytes by which a reservation may differ: amounts of a Node are often rounded by hand."""


class ReportedNode(msgspec.Struct, frozen=True):
    """Status of a Node object: capacity, allocatable amounts, and the version of its kubelet (empty where it is not
    there)."""

    capacity: Mapping[str, Quantity] = {}
    allocatable: Mapping[str, Quantity] = {}
    kubelet_version: str = ""

    @property
    def release(self) -> str:
        """The kubelet's release, such as 1.33; empty where it is not known."""
        found = _VERSION.fullmatch(self.kubelet_version)
        return found[1] if found else ""


def check_reported(reported: ReportedNode, reserved: Mapping[str, Quantity], release: str) -> Iterator[Contradiction]:
    """Yield where a Node object contradicts the `release` of the decisions, and the amounts that the configuration
    keeps from pods.

    What is kept is compared, not what is left, because a described machine has only about the node's memory.
    """
    if reported.release not in ("", release):
        yield Contradiction(
            "release-differs",
            "release",
            f"The node runs kubelet {reported.kubelet_version}; decisions are those of Kubernetes {release}",
            "`--kubernetes auto` takes the node's",
        )
    for name in _COMPARED:
        if name in reported.capacity and name in reported.allocatable and name in reserved:
            kept = reported.capacity[name].sub(reported.allocatable[name])
            if name == "memory":  # huge pages are not memory for pods either
                kept = kept.sub(_huge_pages(reported.capacity))
            if abs(kept.nano - reserved[name].nano) > _SLACK.get(name, 0) * 10**9:
                yield Contradiction(
                    "allocatable-differs",
                    "configuration",
                    f"The Node object keeps {kept} of its {name} from pods, the configuration {reserved[name]}",
                    "Is it the configuration of this node? `kubectl get --raw /api/v1/nodes/NAME/proxy/configz` is",
                )


def _huge_pages(capacity: Mapping[str, Quantity]) -> Quantity:
    return Quantity.of(sum(amount.value() for name, amount in capacity.items() if name.startswith(HUGEPAGES_PREFIX)))
