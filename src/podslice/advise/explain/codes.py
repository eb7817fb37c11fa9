"""Stable codes beside upstream's texts: why a container owns CPUs or not, what speaks against a candidate, why a pod
was refused. Programs may rely on them; docs/explain.md lists them, and a test compares the two."""

from __future__ import annotations

ELIGIBILITY = {
    "exclusive": "whole CPUs in a Guaranteed pod: exclusive",
    "budget-fraction": "whole CPUs, but the pod's budget is not a whole number and is not divided: shared pool",
    "mixed": "its annotation requests exclusive CPUs and a part of shared ones: exclusive",
    "policy-none": "the CPU Manager policy is none: no container owns CPUs",
    "not-guaranteed": "the pod is not Guaranteed: it shares",
    "no-cpu": "it asks for no CPU: it shares",
    "fraction": "it asks for a fraction of a CPU: it shares",
    "overflow": "64 bits do not hold its CPUs in thousandths: Kubernetes counts another amount",
    "container-not-guaranteed": "its own requests and limits differ or miss one: it shares its pod's CPUs",
    "by-container": "it owns CPUs as a whole only under a Topology Manager policy in pod scope: here it owns none",
    "pod-level-ignored": "the pod has pod-level resources, and the managers leave such pods alone: it shares",
    "pod-level-unread": "the kubelet does not read pod-level resources: only the containers count",
}

CANDIDATES = {
    "fits": "every resource prefers this set",
    "wide": "has enough free, but is not preferred: counting what is reserved and in use, fewer NUMA nodes are enough",
    "wide-single": "more than one NUMA node, which single-numa-node never takes",
    "short": "too little is free",
    "small": "too little even when empty",
    "group": "memory of these NUMA nodes is tied to another group of nodes",
    "joint": "memory and huge pages are taken together, and another of them does not fit",
    "bare": "no hint for sets with NUMA nodes that have none of it",
    "pool": "no hint: the pod's exclusive containers leave nothing of its budget for its other containers",
    "apart": "no hint for this set: what the pod holds already lies elsewhere",
    "unhinted": "no hint for this set, although enough is free",
}

REFUSALS = {
    "cpu-short": "the node has too few free CPUs",
    "cpu-too-big": "no set of NUMA nodes the policy takes has that many CPUs even when empty",
    "cpu-scattered": "enough CPUs are free, but not on a set of NUMA nodes the policy takes",
    "memory-short": "the node has too little free memory",
    "memory-too-big": "no set of NUMA nodes the policy takes has that much memory even when empty",
    "memory-scattered": "enough memory is free, but not on a set of NUMA nodes the policy takes",
    "hugepages-short": "the node has too few free huge pages",
    "hugepages-too-big": "no set of NUMA nodes the policy takes has that many huge pages even when empty",
    "hugepages-scattered": "enough huge pages are free, but not on a set of NUMA nodes the policy takes",
    "devices-short": "the node has too few free devices",
    "devices-too-big": "no set of NUMA nodes the policy takes has that many devices even when empty",
    "devices-scattered": "enough devices are free, but not on a set of NUMA nodes the policy takes",
    "no-common-set": "each resource prefers some sets of NUMA nodes, but no set is preferred by all",
    "smt-fraction": "full-pcpus-only gives whole cores, and the request does not fill them",
    "smt-short": "full-pcpus-only finds too few CPUs on cores without reserved CPUs",
    "smt-sizes": "full-pcpus-only gives whole cores, and none of whatever sizes make up the request",
    "pod-pool-empty": "the pod's exclusive containers leave nothing for its other containers",
    "node-pool-empty": "nothing would be left for the pods that share",
    "node-total": "all pods together would ask for more than the node has for pods",
    "too-many-pods": "the node has as many pods as its configuration allows",
    "amount-too-large": "64 bits do not hold an amount of the pod",
    "cpu-class-full": "the CPU classes that it names have too few free CPUs",
    "cpus-filtered": "plugins exclude it from CPUs that are free",
    "plugin-broken": "a plugin of the CPU Manager broke its contract",
    "invalid-annotation": "an annotation under podslice.io, which the policy reads, is wrong",
    "upstream-defect": "the kubelet never answers, or crashes",
    "allocation-failed": "a manager could not allocate on the NUMA nodes that were chosen",
    "other": "see upstream's message",
}
