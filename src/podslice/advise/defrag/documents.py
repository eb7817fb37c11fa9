"""Documents that `podslice defrag` prints."""

from __future__ import annotations

import msgspec

from podslice.advise.defrag.largest import Largest
from podslice.advise.defrag.moves import DefragmentationResult
from podslice.advise.defrag.plan import Plan
from podslice.advise.defrag.restarts import RestartPlan
from podslice.evidence.provenance import Provenance

__all__ = ["DefragmentationPlanList", "DefragmentationResult", "LargestPod", "PodPlan"]


class PodPlan(msgspec.Struct, frozen=True):
    """The plan that makes room for one pod, or with `resized` for the resize of a running pod, after the plans before
    it. `state` is the digest of the assignments on the node that the plan begins on: an agent carries it out on no
    other."""

    pod: str
    plan: Plan | RestartPlan
    resized: bool = False
    state: str = ""


class DefragmentationPlanList(msgspec.Struct, frozen=True):
    """One plan for each pod, in the order of the files, and what they rest on."""

    items: tuple[PodPlan, ...]
    provenance: Provenance = Provenance()


class LargestPod(Largest, frozen=True, rename="camel"):
    """CPUs of the largest pod that is admitted now, and after the plan, which is null where nothing larger fits, and
    what the answer rests on."""

    provenance: Provenance = Provenance()
