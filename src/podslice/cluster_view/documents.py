"""The answers of `podslice cluster` about the nodes of a cluster and the pods that wait."""

from __future__ import annotations

from podslice.cluster_view.answers import ClusterFragmentation, ClusterNodes, PendingPodList, PodFitList

__all__ = ["ClusterFragmentation", "ClusterNodes", "PendingPodList", "PodFitList"]
