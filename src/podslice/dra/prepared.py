"""Claims prepared on this node: read from their allocation, checked, and kept (cluster-integration A.3.2, E.5).

The scheduler allocates an amount of a NUMA node. The node decides which CPUs these are, with the manager that also
decides about pods: the claim's holder is admitted like one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from podslice.api.pod.claim_holder import CLAIMED, HOLDER_NAMESPACE, holder_container, holder_uid
from podslice.api.pod.spec import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from podslice.dra.names import DRIVER, capacity_resource, numa_part, part_of, pool_name
from podslice.dra.objects import AllocationResult, ResourceClaim
from podslice.machine.model import CPUTopology
from podslice.node.plugins.claim_parts import ClaimPart
from podslice.values.errors import PodsliceError
from podslice.values.quantity import BINARY_SI, Quantity

_SOME = 1 << 20
_LONGEST = 256
_MOST = 32
"""Most devices of one allocation, the API server's own limit."""


class ClaimError(PodsliceError):
    """Raised where a claim cannot be prepared, with a line that fits an event."""

    def __init__(self, text: str) -> None:
        super().__init__(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}...")


class ImpossibleClaimError(ClaimError):
    """Raised for a claim that this node can never serve as it is allocated; `reason` is one word, for its condition."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class NodeDevice(NamedTuple):
    """The part of the node that a device stands for: its NUMA node, the lowest where it spans several, and the number
    of its `cpus` where a claim gets all of them; None where claims take amounts."""

    numa_node: int
    cpus: int | None = None


NodeDevices = Callable[[str], NodeDevice | None]
"""Looks a device up by name; None for one that this node does not have."""


def node_devices(numa_nodes: Iterable[int], topology: CPUTopology, parts: Mapping[str, ClaimPart]) -> NodeDevices:
    """Return the devices of a node with these NUMA nodes and these parts of its CPUs for claims, offered or not: a
    claim may have been allocated before the policy changed."""
    shared = {numa_part(numa): NodeDevice(numa) for numa in numa_nodes}

    def find(device: str) -> NodeDevice | None:
        name = part_of(device)
        part = parts.get(name)
        if name in shared or part is None:
            return shared.get(name)
        if part.kind == "class":
            return NodeDevice(part.id)
        numa = topology.numa_nodes_of(part.cpus)
        return NodeDevice((numa & -numa).bit_length() - 1, part.cpus.bit_count())

    return find


class PreparedDevice(msgspec.Struct, frozen=True, rename="camel"):
    """A device of the allocation, and the amount taken of it: CPUs, and bytes by resource."""

    request: str
    pool: str
    device: str
    numa_node: int
    cpus: int = 0
    memory: dict[str, int] = {}
    share_id: str | None = msgspec.field(default=None, name="shareID")


class PreparedClaim(msgspec.Struct, frozen=True, rename="camel"):
    """A claim prepared on this node; `pods` are the UIDs of those that may use it."""

    uid: str
    namespace: str
    name: str
    devices: tuple[PreparedDevice, ...] = ()
    pods: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def holder(self) -> str:
        """The UID under which it holds CPUs."""
        return holder_uid(self.uid)

    def container(self, index: int) -> str:
        """Return the name of the holder's container for one of the devices."""
        return holder_container(index, part_of(self.devices[index].device))

    def holder_pod(self) -> Pod | None:
        """Return the pod that holds its CPUs, None for a claim without any."""
        containers = tuple(
            _make_holder_container(self.container(index), device.cpus)
            for index, device in enumerate(self.devices)
            if device.cpus
        )
        if not containers:
            return None
        metadata = ObjectMeta(name=f"{self.namespace}.{self.name}", namespace=HOLDER_NAMESPACE, uid=self.holder)
        return Pod(spec=PodSpec(containers=containers), metadata=metadata)


def claimed_containers(pod: Pod, claims: Iterable[PreparedClaim]) -> list[str]:
    """Return the containers of a pod that have CPUs by these claims; the pod may use all of them."""
    prefix = f"{pod.metadata.name}-"
    having: dict[str, set[str]] = {}
    for one in pod.spec.resource_claims:
        for claim in claims:
            # The API server names a claim of a template `POD-ENTRY-SUFFIX`.
            made = one.resource_claim_template_name and claim.name.startswith(f"{prefix}{one.name}-")
            if claim.name == one.resource_claim_name or made:
                having[one.name] = {device.request for device in claim.devices if device.cpus}
    return [
        container.name
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        if any(
            _requests_any(claim, having.get(str(claim.get("name")), set()))
            for claim in container.resources.claims or ()
        )
    ]


def _requests_any(claim: Mapping[str, object], requests: set[str]) -> bool:
    """Whether a container's entry refers to the claim as a whole, or to one of these requests of it."""
    return bool(requests) and claim.get("request") in (None, "", *requests)


def annotate_claimed(pod: Pod, claims: Iterable[PreparedClaim]) -> Pod:
    """Return the pod with the annotation that its containers with CPUs by these claims get none by their requests."""
    names = claimed_containers(pod, list(claims)) if pod.spec.resource_claims else []
    if not names:
        return pod
    annotations = (pod.metadata.annotations or {}) | {CLAIMED: ",".join(names)}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


def _make_holder_container(name: str, cpus: int) -> Container:
    # The memory only makes the holder's pod Guaranteed, so that its CPUs are exclusive; it is not booked.
    amounts = {"cpu": Quantity.of(cpus), "memory": Quantity.of(_SOME, BINARY_SI)}
    return Container(name=name, resources=ResourceRequirements(requests=amounts, limits=amounts))


def reserved_pods(claim: ResourceClaim) -> frozenset[str]:
    """Return the UIDs of the pods that may use a claim."""
    return frozenset(one.uid for one in claim.status.reserved_for if one.resource == "pods" and not one.api_group)


def prepare(
    claim: ResourceClaim, *, uid: str, node: str, devices: NodeDevices, users: Iterable[str] = ()
) -> PreparedClaim:
    """Return what the claim of this UID holds on a node with these devices. `users` are the pods for which it is
    prepared already: it stays theirs, whichever pods it is reserved for besides. Raises `ClaimError`."""
    metadata, allocation = claim.metadata, claim.status.allocation
    who = f"claim {metadata.namespace}/{metadata.name}"
    # The kubelet sends identities only: the driver reads the claim itself and must compare (cluster-integration A.3.2).
    if metadata.uid != uid:
        raise ClaimError(f"{who} has UID {metadata.uid}, not {uid}: it was deleted and made again")
    if allocation is None:
        raise ClaimError(f"{who} is not allocated")
    # A claim may have devices of several drivers; each prepares its own.
    own = [one for one in allocation.devices.results if one.driver == DRIVER]
    if not own or len(own) > _MOST:
        raise ClaimError(f"{who} has {len(own)} devices of {DRIVER}, 1 to {_MOST} can be prepared")
    reserved = reserved_pods(claim)
    # CPUs belong to containers of one pod, so a claim that several pods share stays with the pod it was prepared for.
    pods = reserved if len(reserved) == 1 else reserved.intersection(users)
    if len(reserved) > 1 and len(pods) != 1:
        raise ImpossibleClaimError(
            "SharedByPods",
            f"{who} is reserved for {len(reserved)} pods, CPUs of a claim are for the containers of one pod; use a "
            "ResourceClaimTemplate",
        )
    held = tuple(_prepare_device(who, one, node, devices(one.device)) for one in own)
    return PreparedClaim(uid, metadata.namespace, metadata.name, held, tuple(sorted(pods)))


def _prepare_device(who: str, result: AllocationResult, node: str, device: NodeDevice | None) -> PreparedDevice:
    if result.pool != pool_name(node):
        raise ClaimError(f"{who} is allocated from pool {result.pool}, this node's is {pool_name(node)}")
    if device is None:
        raise ImpossibleClaimError(
            "NoSuchDevice", f"{who} is allocated device {result.device}, which this node does not have"
        )
    if result.admin_access:
        raise ImpossibleClaimError(
            "AdminAccess", f"{who} asks for {result.device} with adminAccess, which CPUs and memory do not have"
        )
    # The kubelet knows main requests only, without the alternative that was taken (cluster-integration A.3.2).
    request = result.request.partition("/")[0]
    if device.cpus is not None:
        return PreparedDevice(request, result.pool, result.device, device.numa_node, device.cpus)
    cpus, memory = 0, dict[str, int]()
    for name, amount in (result.consumed_capacity or {}).items():
        short, number = name.removeprefix(f"{DRIVER}/"), amount.as_int64()
        # Without a step in the policy the scheduler accepts 1.5, and a container cannot own half a CPU.
        if number is None or number < 0:
            raise ImpossibleClaimError(
                "NotWhole", f"{who} is allocated {amount} {short} of {result.device}: only whole amounts can be given"
            )
        if short == "cpu":
            cpus = number
        elif number:
            memory[_offered_resource(who, short)] = number
    if not cpus and not memory:
        raise ImpossibleClaimError(
            "NothingRequested",
            f"{who} asks {result.device} for nothing; name capacity.requests {DRIVER}/cpu or /memory",
        )
    return PreparedDevice(request, result.pool, result.device, device.numa_node, cpus, memory, result.share_id)


def _offered_resource(who: str, capacity: str) -> str:
    """Return the resource that a capacity of our slices is an amount of. Raises `ImpossibleClaimError`."""
    resource = capacity_resource(capacity)
    if resource == capacity != "memory":
        raise ImpossibleClaimError("NotOffered", f"{who} is allocated {capacity}, which this node does not offer")
    return resource


def check_memory(claim: PreparedClaim, others: Iterable[PreparedClaim], kept: Mapping[int, Mapping[str, int]]) -> None:
    """Raise `ClaimError` where claims together have more memory of a NUMA node than is kept for them."""
    own = dict[tuple[int, str], int]()
    for numa, name, size in _amounts([claim]):
        own[numa, name] = own.get((numa, name), 0) + size
    held = list(_amounts(others))
    for (numa, name), size in own.items():
        room = kept.get(numa, {}).get(name, 0)
        wants = f"claim {claim} wants {size} bytes of {name} on NUMA node {numa}, where claims may have {room}"
        if size > room:
            raise ImpossibleClaimError("NotOffered", wants)
        taken = sum(amount for *where, amount in held if where == [numa, name])
        if taken + size > room:
            raise ClaimError(f"{wants} and have {taken}; unprepare others first")


def _amounts(claims: Iterable[PreparedClaim]) -> Iterator[tuple[int, str, int]]:
    for claim in claims:
        for device in claim.devices:
            for name, size in device.memory.items():
                yield device.numa_node, name, size
