"""Kubernetes 1.37, as it differs from 1.36: from release notes, documentation and tests, until it can be recorded."""

from __future__ import annotations

from podslice.values.releases.v1_36 import RELEASE as BEFORE

_GATES = """
DRAExtendedResource g+!
HugepageAwareEviction b+
InPlacePodVerticalScalingInitContainers g+!
MemoryQoS b+
NodeDeclaredFeatures g+!
PerPodPIDLimit a-
PodLevelResourceManagers b-
PodLevelResourcesFixDefaulting b+
PodLevelResourcesFixKubeletQOSClass b+
"""

_NEEDS = """
PodLevelResourcesFixDefaulting PodLevelResources
"""

RELEASE = BEFORE.next(
    proof="specification",
    gates=_GATES,
    needs=_NEEDS,
    state_files="v4",
)
