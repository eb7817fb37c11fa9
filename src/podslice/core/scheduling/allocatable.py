"""Capacity and allocatable of a node, as its Node object reports them (memory-device 2.4, 3.8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podslice.core.config.kubelet import KubeletConfig
from podslice.core.config.reservation import node_capacity
from podslice.core.machine.model import Machine
from podslice.core.pod.demand import HUGEPAGES_PREFIX
from podslice.core.values.quantity import Quantity

_NONE: Mapping[str, int] = {}


class NodeResources(NamedTuple):
    """`status.capacity` and `status.allocatable`. Without root file system there is no ephemeral-storage in them."""

    capacity: dict[str, Quantity]
    allocatable: dict[str, Quantity]


def node_resources(
    machine: Machine,
    config: KubeletConfig,
    reservation: Mapping[str, Quantity],
    *,
    device_capacity: Mapping[str, int] = _NONE,
    device_allocatable: Mapping[str, int] = _NONE,
) -> NodeResources:
    """What the node has, and what is left for pods after `reservation` (node allocatable reservation).

    Huge pages are taken out of the memory for pods, because the machine's memory includes them.
    """
    capacity = node_capacity(machine)
    capacity["pods"] = Quantity.of(max_pods(machine, config))
    allocatable = {name: _at_least_zero(amount, reservation.get(name)) for name, amount in capacity.items()}
    for name, count in device_capacity.items():
        capacity[name] = Quantity.of(count)
    for name, count in device_allocatable.items():
        allocatable[name] = Quantity.of(count)
    for name, amount in capacity.items():
        if name.startswith(HUGEPAGES_PREFIX):
            allocatable["memory"] = _at_least_zero(allocatable["memory"], amount)
    return NodeResources(capacity, allocatable)


def max_pods(machine: Machine, config: KubeletConfig) -> int:
    """The most pods a kubelet takes at a time."""
    if config.pods_per_core > 0:
        return min(machine.cpu_count * config.pods_per_core, config.max_pods)
    return config.max_pods


def _at_least_zero(amount: Quantity, taken: Quantity | None) -> Quantity:
    if taken is None:
        return amount
    rest = amount.sub(taken)
    return rest if rest.sign() >= 0 else Quantity.of(0, amount.format)


def exclusive_cpus(cpus: int, *, reserved: int, kept_shared: int = 0) -> int:
    """How many of a node's CPUs can be given away exclusively at most (KEP-4540).

    `kept_shared` CPUs always stay for containers without their own: an option the KEP considered and archived, which
    a node could report as one more allocatable figure, `exclusive-cpu`.
    """
    return max(0, cpus - reserved - kept_shared)
