"""Losses of a fix: guarantees of the pod, or of every pod of the node, that held before it."""

from __future__ import annotations

from podslice.advise.explain.fixes.bench import PodNeeds
from podslice.advise.explain.fixes.changes import Change, EditPod, Reconfigure
from podslice.advise.explain.fixes.edits import places, removed_names
from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import Pod, ResourceRequirements
from podslice.config.annotations import CPU_CLASS
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy_options import BEST_EFFORT, NONE, RESTRICTED, SINGLE_NUMA_NODE
from podslice.node.view import NodeView
from podslice.scheduling.predicates import BASIC_RESOURCES

LOSSES = {
    "alignment": "resources need no longer be on the same or the fewest NUMA nodes",
    "resources": "a container gets nothing of a resource that it asks for",
    "exclusive-cpus": "CPUs are no longer exclusive",
    "full-cores": "cores may have CPUs of several owners",
    "memory-binding": "memory is no longer bound to NUMA nodes",
    "strict-reservation": "containers without CPUs of their own may run on reserved CPUs",
    "cpu-class": "CPUs are of another class than the pod, or the policy, asked for",
    "promised-cpus": "containers may lose CPUs that were promised to them",
}
"""Stable words for programs, and their meaning."""
_STRENGTH = {NONE: 0, BEST_EFFORT: 1, RESTRICTED: 2, SINGLE_NUMA_NODE: 3}
LOST_WITH_OPTION = {
    "full-pcpus-only": "full-cores",
    "align-by-socket": "alignment",
    "prefer-align-cpus-by-uncorecache": "alignment",
    "strict-cpu-reservation": "strict-reservation",
}


def losses(change: Change, needs: PodNeeds, node: NodeView, edited: PodNeeds | None = None) -> tuple[str, ...]:
    """Return the guarantees of `LOSSES` that a change gives up, for a pod that the node refused. `edited` is what the
    pod of an `EditPod` needs."""
    if isinstance(change, EditPod):
        before, after = needs.admission, (edited or PodNeeds.of(change.pod, node)).admission
        if _cpu_class(before) != _cpu_class(after):
            return ("cpu-class",)
        return tuple(_edit_losses(before, after, node)) + _dropped(needs.pod, change.pod)
    if isinstance(change, Reconfigure):
        return config_losses(node.config, change.config, managed=needs.admission.managed)
    return ()


def _dropped(before: Pod, after: Pod) -> tuple[str, ...]:
    """Return the loss of huge pages or devices that a place asked for."""
    now = dict(places(after))
    for place, resources in places(before):
        gone = removed_names(resources, now.get(place, ResourceRequirements()))
        if gone - set(BASIC_RESOURCES):
            return ("resources",)
    return ()


def _cpu_class(pod: AdmissionPod) -> str:
    return (pod.spec.metadata.annotations or {}).get(CPU_CLASS, "")


def config_losses(before: KubeletConfig, after: KubeletConfig, *, managed: bool = False) -> tuple[str, ...]:
    """Return the guarantees that one configuration gives and another does not. `managed`: to a pod with pod-level
    resources, which owns CPUs as a whole in pod scope only."""
    found = set()
    if strength(after) < strength(before):
        found.add("alignment")
    if before.cpu_manager_policy == "static" != after.cpu_manager_policy:
        found |= {"exclusive-cpus", *_lost_options(before, after)}
    elif after.cpu_manager_policy == "static":
        found |= _lost_options(before, after)
        if managed and before.aligns_pods and not after.aligns_pods:
            found.add("exclusive-cpus")
    if before.memory_manager_policy == "Static" != after.memory_manager_policy:
        found.add("memory-binding")
    return tuple(name for name in LOSSES if name in found)


def strength(config: KubeletConfig) -> tuple[int, bool]:
    """Return how much a Topology Manager guarantees: by policy, then pods as a whole before single containers."""
    policy = _STRENGTH.get(config.topology_manager_policy, 0)
    return policy, bool(policy) and config.topology_manager_scope == "pod"


def _lost_options(before: KubeletConfig, after: KubeletConfig) -> set[str]:
    return {
        loss
        for name, loss in LOST_WITH_OPTION.items()
        if _is_on(before, name) and not (_is_on(after, name) and after.cpu_manager_policy == "static")
    }


def _is_on(config: KubeletConfig, name: str) -> bool:
    return config.cpu_manager_policy_options.get(name, "").lower() == "true"


def _edit_losses(before: AdmissionPod, after: AdmissionPod, node: NodeView) -> list[str]:
    owned = {one.name for one in before.containers if one.exclusive_cpus}
    owns = {one.name for one in after.containers if one.exclusive_cpus}
    found = []
    if node.pins_cpus and not before.ignored and (owned - owns or (before.cpus and not after.cpus)):
        found.append("exclusive-cpus")
    if node.binds_memory and not before.ignored and before.guaranteed and not after.guaranteed:
        found.append("memory-binding")
    return found
