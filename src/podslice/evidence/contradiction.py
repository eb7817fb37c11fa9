"""Facts about one node that cannot all be true."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    from podslice.config.kubelet import KubeletConfig
    from podslice.evidence.pod_resources import PodResources
    from podslice.machine.devices import DeviceInventory
    from podslice.machine.model import Machine
    from podslice.node.checkpoints.content import Content

About = Literal["machine", "memory", "configuration", "state", "devices", "pods", "release"]
Code = Literal[
    "allocatable-differs",
    "cpus-differ",
    "devices-elsewhere",
    "memory-differs",
    "nodes-differ",
    "owners-elsewhere",
    "owners-misplaced",
    "owners-missing",
    "owners-resized",
    "owners-scattered",
    "refused-but-admitted",
    "refused-otherwise",
    "release-differs",
    "reported-differs",
    "reserved-owned",
    "runs-but-refused",
]


class Contradiction(msgspec.Struct, frozen=True):
    """Evidence that contradicts the machine, the configuration or other evidence. `code` is stable, `about` names what
    is in doubt, `text` says what contradicts what, and `remedy` what would settle it. `pods` are the UIDs of the pods
    that it is about."""

    code: Code
    about: About
    text: str
    remedy: str = ""
    pods: tuple[str, ...] = ()

    def __str__(self) -> str:
        end = "" if self.remedy.endswith("?") else "."
        return f"{self.text}. {self.remedy}{end}" if self.remedy else f"{self.text}."


def doubt_node(found: Iterable[Contradiction]) -> Contradiction | None:
    """Return the first contradiction that leaves it open which machine or configuration the node has. What is computed
    about the node's free CPUs and memory rests on it."""
    return next((one for one in found if one.about in ("machine", "configuration")), None)


def doubt_machine(found: Iterable[Contradiction]) -> Contradiction | None:
    """Return the first contradiction that leaves it open whether the machine, or its memory, is the node's."""
    return next((one for one in found if one.about in ("machine", "memory")), None)


class StateFacts(NamedTuple):
    """State files by name, and the node that is given for them. `measured`: the machine was read from a node's own
    system, so that the files and not the machine are in doubt. `changed`: options changed the configuration, so owners
    may have been placed under another one. `devices` are those that are given, None for none, `labels` the names of
    pods by UID, `answers` those of the kubelet's PodResources API, None where it was not asked."""

    contents: Mapping[str, Content]
    machine: Machine
    measured: bool
    config: KubeletConfig
    changed: bool = False
    devices: DeviceInventory | None = None
    labels: Mapping[str, str] = {}
    answers: PodResources | None = None

    @property
    def about(self) -> About:
        return "state" if self.measured else "machine"

    def label(self, uid: str) -> str:
        return self.labels.get(uid, uid)
