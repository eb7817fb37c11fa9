"""A running pod that was granted more than it can have: it runs with what it has, and its growth waits.

That happens after a growth of which only the grant is known, because `podslice_policy_state` was lost or no agent
carried it out, when other pods have the room by now (docs/resize.md).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.api.pod.spec import Container, Pod, ResourceList, ResourceRequirements, map_containers
from podslice.machine.memory import Block
from podslice.node.cpu.state import PodCPUs
from podslice.values.quantity import BINARY_SI, Quantity

_CPU, _MEMORY = "cpu", "memory"


def reduce_to_held(pod: AdmissionPod, had: PodCPUs) -> Pod | None:
    """Return the pod with requests for what it holds, where that is less than its present requests; None where it is
    not less."""
    smaller = {one.name: _reduced_amounts(had, one) for one in pod.containers}
    spec = map_containers(pod.spec.spec, lambda one: _with_requests(one, smaller.get(one.name, {})))
    if pod.managed and spec.resources is not None:
        whole = _amounts(had.pod_cpus.bit_count(), pod.cpus, had.memory.whole, _own_memory(spec.resources))
        spec = replace(spec, resources=_with_amounts(spec.resources, whole))
    return None if spec == pod.spec.spec else replace(pod.spec, spec=spec)


def _reduced_amounts(had: PodCPUs, one: AdmissionContainer) -> ResourceList:
    """Return the amounts that a container holds, where they are less than it requests."""
    found = _amounts(
        had.assignments.get(one.name, 0).bit_count(),
        one.exclusive_cpus,
        had.memory.containers.get(one.name, ()),
        (one.memory or {}).get(_MEMORY, 0),
    )
    if one.remainder and _CPU in found:
        found[_CPU] = found[_CPU].add(Quantity.milli(one.remainder))
    return found


def _amounts(cpus: int, asked_cpus: int, blocks: Iterable[Block], asked_memory: int) -> ResourceList:
    """Return the amounts that are held, if less than requested."""
    memory = sum(block.size for block in blocks if block.type == _MEMORY)
    found: ResourceList = {}
    if 0 < cpus < asked_cpus:
        found[_CPU] = Quantity.of(cpus)
    if 0 < memory < asked_memory:
        found[_MEMORY] = Quantity.of(memory, BINARY_SI)
    return found


def _own_memory(resources: ResourceRequirements) -> int:
    amount = (resources.requests or {}).get(_MEMORY)
    return 0 if amount is None else amount.value()


def _with_requests(container: Container, amounts: ResourceList) -> Container:
    return replace(container, resources=_with_amounts(container.resources, amounts))


def _with_amounts(resources: ResourceRequirements, amounts: ResourceList) -> ResourceRequirements:
    """Return the requirements with these amounts. Requests and limits are equal where CPUs or memory are a container's
    own."""
    if not amounts:
        return resources
    return replace(resources, requests=(resources.requests or {}) | amounts, limits=(resources.limits or {}) | amounts)
