"""Pods as the resource managers see them: which containers get exclusive CPUs (cpu-topology 5).

Admission asks the same few questions about a pod again and again: is it Guaranteed, does it have pod-level resources,
how many whole CPUs may each container own? `AdmissionPod` answers them once, when the pod reaches the node, so that
hint generation and allocation only read integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from podslice.api.pod.claim_holder import CLAIMED, HOLDER_PREFIX
from podslice.api.pod.demand import (
    HUGEPAGES_PREFIX,
    is_container_equivalent_guaranteed,
    is_pod_level_resources_set,
    overflow_problem,
    pod_qos,
)
from podslice.api.pod.mixed import MixedShare
from podslice.api.pod.spec import Container, Pod, ResourceList, is_restartable_init
from podslice.values.golang import U64, wrap_int64
from podslice.values.quantity import Quantity
from podslice.values.releases.release import PodLevelPods, Release
from podslice.values.releases.table import DEFAULT

_INT64 = 1 << 63
_NANO = 10**9
_USUAL = 1 << 40
"""CPUs below which no product of upstream's wraps."""
NO_MIXED_SHARES: Mapping[str, MixedShare] = MappingProxyType({})


_NOTHING: frozenset[str] = frozenset()
_NO_AMOUNTS: Mapping[str, Any] = MappingProxyType({})


class QuotaRule(Protocol):
    """The part of a policy for mixed containers that decides their CFS quota. `throttled`: their CPU limits are
    enforced."""

    @property
    def throttled(self) -> bool: ...


class AdmissionContainer(msgspec.Struct, frozen=True):
    """An init or app container.

    - `exclusive_cpus`: whole CPUs it is entitled to own, 0 for shared (cpu-topology 5.2)
    - `plain_init`: an init container that ends before the next one starts
    - `memory`, `memory_exact`: its request as `memory_request` reads it
    - `limits`: whole units of the other resources that its limits name
    - `isolated`: inside a pod with pod-level resources, it counts as isolated from the pod's other containers once it
      has an assignment (Guaranteed on its own, with an integral CPU limit; cpu-topology 6.8)
    - `remainder`: millicores that a container with exclusive CPUs takes of shared ones, possibly 0; None for one that
      shares no CPUs, or all (docs/policy.md)
    - `hides_smt`: it runs on one thread of each core
    - `claimed`: names in `limits` that devices of a claim serve (gate DRAExtendedResource, memory-device 2.7)
    """

    name: str
    init: bool
    restartable: bool
    plain_init: bool
    exclusive_cpus: int
    guaranteed: bool
    isolated: bool
    memory: dict[str, int] | None
    memory_exact: bool
    limits: dict[str, int]
    spec: Container
    remainder: int | None = None
    hides_smt: bool = False
    claimed: frozenset[str] = frozenset()

    @property
    def mixed(self) -> bool:
        """Whether it has exclusive and shared CPUs."""
        return self.remainder is not None

    @property
    def shares(self) -> bool:
        """Whether it needs shared CPUs."""
        return not self.exclusive_cpus or self.remainder is not None

    def is_throttled(self, rule: QuotaRule | None) -> bool:
        """Whether it keeps its CFS quota in spite of exclusive CPUs, because the policy throttles mixed containers."""
        return self.remainder is not None and rule is not None and rule.throttled


class AdmissionPod(msgspec.Struct, frozen=True):
    """A pod under admission; `containers` are init containers, then app containers, in specification order.

    - `guaranteed`: its QoS class is Guaranteed
    - `pod_level`: `spec.resources` names a resource
    - `managed`: it has pod-level resources, and the gate PodLevelResourceManagers lets the managers act on it
    - `ignored`: it has pod-level resources, and the managers leave the pod alone (cpu-topology 5.4)
    - `cpus`: CPUs of the whole pod (cpu-topology 5.3)
    - `overflow`: an amount beyond 64 bits, as a sentence, if any
    - `mixed`: some container has exclusive and shared CPUs
    - `hides_smt`: some container runs on one thread of each of its cores
    - `holds_claim`: it stands for a claim of devices
    """

    uid: str
    qos: str
    guaranteed: bool
    pod_level: bool
    managed: bool
    ignored: bool
    cpus: int
    overflow: str
    containers: tuple[AdmissionContainer, ...]
    spec: Pod
    mixed: bool = False
    hides_smt: bool = False
    holds_claim: bool = False

    @property
    def mixed_shares(self) -> Mapping[str, MixedShare]:
        """The parts of the CPU request that are exclusive and shared, of containers with both."""
        if not self.mixed:
            return NO_MIXED_SHARES
        own = (one for one in self.containers if one.remainder is not None)
        return {one.name: MixedShare(one.exclusive_cpus, one.remainder or 0) for one in own}

    @classmethod
    def of(
        cls,
        pod: Pod,
        gates: Mapping[str, bool],
        *,
        unmanaged: bool = False,
        mixed: Mapping[str, MixedShare] = NO_MIXED_SHARES,
        hides_smt: frozenset[str] = frozenset(),
        release: Release = DEFAULT,
    ) -> AdmissionPod:
        """Return the managers' view of `pod` under the given feature gates.

        - `unmanaged`: as if PodLevelResourceManagers were off
        - `mixed`: containers with exclusive and shared CPUs, where they may own some
        - `hides_smt`: containers that run on one thread of each of their cores
        - `release`: that of the kubelet
        """
        qos = pod_qos(pod, gates)
        pod_level = is_pod_level_resources_set(pod)
        managers_on = gates["PodLevelResourceManagers"] and not unmanaged
        managed = pod_level and managers_on
        ignored = pod_level and _are_ignored(release.pod_level_pods, gates, managers_on=managers_on)
        if ignored:
            mixed = NO_MIXED_SHARES
        annotations = pod.metadata.annotations
        claiming = annotations.get(CLAIMED, "").split(",") if annotations else ()
        stated = release.allocated_status_wins and gates["InPlacePodVerticalScaling"]
        allocated = _allocated(pod) if stated and pod.status.container_statuses else _NO_AMOUNTS
        guaranteed, claims = qos == "Guaranteed", pod.status.extended_resource_claim_status is not None
        # A list first: a tuple of a generator takes longer, and every admission comes here.
        containers = tuple(
            [
                _make_container(
                    container,
                    mixed.get(container.name),
                    init=init,
                    eligible=guaranteed and container.name not in claiming,
                    managed=managed,
                    hides_smt=container.name in hides_smt,
                    claimed=claimed_resources(pod, container.name, gates) if claims else _NOTHING,
                    allocated=allocated.get(container.name, _NO_AMOUNTS),
                )
                for init, group in ((True, pod.spec.init_containers), (False, pod.spec.containers))
                for container in group
            ]
        )
        return cls(
            uid=pod.metadata.uid,
            qos=qos,
            guaranteed=guaranteed,
            pod_level=pod_level,
            managed=managed,
            ignored=ignored,
            cpus=_count_pod_cpus(pod, qos, containers, managed=managed),
            overflow=overflow_problem(pod, gates),
            containers=containers,
            spec=pod,
            mixed=bool(mixed) and any(one.mixed for one in containers),
            hides_smt=bool(hides_smt) and any(one.hides_smt for one in containers),
            holds_claim=pod.metadata.uid.startswith(HOLDER_PREFIX),
        )


def _are_ignored(rule: PodLevelPods, gates: Mapping[str, bool], *, managers_on: bool) -> bool:
    """Whether the managers leave pods with pod-level resources alone."""
    if rule == "ignored":
        # The managers act on them only with both gates on (cpu-topology 5.4).
        return not (managers_on and gates["PodLevelResources"])
    return rule == "ignored with the gate" and gates["PodLevelResources"]


def claimed_resources(pod: Pod, container: str, gates: Mapping[str, bool]) -> frozenset[str]:
    """Return the extended resources of a container for which the scheduler made a claim, as the pod's status says."""
    made = pod.status.extended_resource_claim_status
    if made is None or not gates["DRAExtendedResource"]:
        return _NOTHING
    return frozenset(one.resource_name for one in made.request_mappings if one.container_name == container)


def _allocated(pod: Pod) -> dict[str, ResourceList]:
    """Return CPU and memory that the status says were allocated, by container."""
    return {
        status.name: {name: amounts[name] for name in ("cpu", "memory") if name in amounts}
        for status in (*pod.status.container_statuses, *pod.status.init_container_statuses)
        if (amounts := status.allocated_resources)
    }


def integral_cpus(quantity: Quantity | None) -> int:
    """Return the quantity as a number of whole CPUs; 0 when missing or fractional. The product wraps at 64 bits as
    upstream's does; profile podslice refuses such pods first."""
    if quantity is None:
        return 0
    cpus, rest = divmod(quantity.nano, _NANO)
    if not rest and 0 <= cpus < _USUAL:
        return cpus
    milli = quantity.milli_value()
    cpus = quantity.value()
    return cpus if cpus * 1000 == milli or wrap_int64(cpus * 1000) == milli else 0


def memory_request(resources: ResourceList | None) -> tuple[dict[str, int] | None, bool]:
    """Return the request of `memory` and huge pages in bytes by resource, as unsigned 64-bit numbers, or None where
    upstream cannot represent one of them; and whether upstream can read all of them as they are written."""
    amounts: dict[str, int] = {}
    exact = True
    for name, quantity in (resources or {}).items():
        if name != "memory" and not name.startswith(HUGEPAGES_PREFIX):
            continue
        size = quantity.as_int64()
        if size is None:
            size, rest = divmod(quantity.nano, _NANO)
            exact = False
            if rest or not -_INT64 <= size < _INT64:
                return None, False
        amounts[name] = size & U64
    return amounts, exact


def _make_container(
    container: Container,
    share: MixedShare | None,
    *,
    init: bool,
    eligible: bool,
    managed: bool,
    hides_smt: bool,
    claimed: frozenset[str],
    allocated: Mapping[str, Any],
) -> AdmissionContainer:
    requests = container.resources.requests or {}
    if allocated:
        requests = {**requests, **allocated}
    limits = container.resources.limits or {}
    guaranteed = is_container_equivalent_guaranteed(container)
    restartable = init and is_restartable_init(container)
    memory, exact = memory_request(requests)
    # In a pod with pod-level resources a container owns CPUs only if it would be Guaranteed alone (KEP-5526).
    eligible = eligible and (guaranteed or not managed)
    if not eligible:
        share = None
    exclusive = integral_cpus(requests.get("cpu")) if eligible else 0
    owned = exclusive if share is None else share.exclusive
    return AdmissionContainer(
        name=container.name,
        init=init,
        restartable=restartable,
        plain_init=init and not restartable,
        exclusive_cpus=owned,
        guaranteed=guaranteed,
        isolated=guaranteed and (share is not None or integral_cpus(limits.get("cpu")) > 0),
        memory=memory,
        memory_exact=exact,
        limits={name: amount.value() for name, amount in limits.items() if name not in ("cpu", "memory")},
        spec=container,
        remainder=None if share is None else share.remainder,
        hides_smt=hides_smt and owned > 0,
        claimed=claimed,
    )


def _count_pod_cpus(pod: Pod, qos: str, containers: tuple[AdmissionContainer, ...], *, managed: bool) -> int:
    """Return the exclusive CPUs that the pod needs at a time: the init peak, or apps and sidecars together."""
    if managed:
        resources = pod.spec.resources
        requests = (resources.requests if resources else None) or {}
        return integral_cpus(requests.get("cpu")) if qos == "Guaranteed" else 0
    sidecars = peak = apps = 0
    for container in containers:
        if not container.init:
            apps += container.exclusive_cpus
        elif container.restartable:
            sidecars += container.exclusive_cpus
        else:
            # An init container runs beside the sidecars before it, but not beside those after it.
            peak = max(peak, sidecars + container.exclusive_cpus)
    return max(peak, apps + sidecars)
