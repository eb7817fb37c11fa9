"""Resources that a node keeps for the system and resources left for pods: reserved CPUs, node allocatable, reserved
memory per NUMA node (cpu-topology 2.1; memory-device 1.2, 2.4, 3.8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from podslice.api.pod.demand import HUGEPAGES_PREFIX
from podslice.config.kubelet import KubeletConfig
from podslice.config.thresholds import ThresholdError, check_soft_thresholds, parse_hard_thresholds
from podslice.machine.model import CPUTopology, Machine, TopologyError
from podslice.values.cpuset import Bits, CPUSetError, format_bits, parse_bits
from podslice.values.errors import StartError, StartKind
from podslice.values.golang import quote
from podslice.values.quantity import BINARY_SI, ZERO, Quantity, QuantityError, hugepage_resource

_RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")
Amounts = dict[str, Quantity]
_NO_TOPOLOGY = StartKind("no-topology", "unable to discover CPU topology info: {error}")
_UNREADABLE_CPUS = StartKind(
    "unreadable-cpus", "unable to parse reserved-cpus list: {error}", "write a list such as 0-1,64"
)
_NOT_ONLINE = StartKind(
    "not-online",
    "reserved-cpus: {cpus} is not a subset of online-cpus: {online}",
    "name CPUs that are online on this machine",
)
_UNREADABLE_AMOUNT = StartKind("unreadable-amount", "{flag} value failed to parse: {error}")
_UNREADABLE_THRESHOLD = StartKind("unreadable-threshold", "{error}", "{remedy}")
_UNREADABLE_SOFT_THRESHOLD = StartKind("unreadable-soft-threshold", "{error}", "{remedy}")
_ABOVE_CAPACITY = StartKind(
    "above-capacity",
    "invalid Node Allocatable configuration. {problems}",
    "give the machine more memory or reserve less",
)
_UNKNOWN_NODE = StartKind(
    "unknown-numa-node",
    "the reserved memory configuration references a NUMA node {node} that does not exist on this machine",
    "reservedMemory names NUMA nodes of this machine",
)
_OTHER_TOTAL = StartKind(
    "other-total",
    "the total amount {amount} of type {resource} is not equal to the value {reserved} determined by Node Allocatable "
    "feature",
    "reservedMemory must add up to systemReserved + kubeReserved + evictionHard of each memory type",
)
_NO_INT64 = StartKind("no-int64", "could not covert a variable of type Quantity to int64")
_UNREADABLE_MEMORY = StartKind("unreadable-memory", "{error}")


class Reservations(NamedTuple):
    """`cpus`: explicitly reserved CPUs (0: only a number is reserved). `total`: node allocatable reservation by
    resource."""

    cpus: Bits
    total: Amounts


def prepare_reservations(config: KubeletConfig, machine: Machine, *, allow_offline: bool = False) -> Reservations:
    """Return the reservations with which a kubelet starts. `allow_offline`: reserved CPUs may be offline, as long as at
    least one is online. Raises `StartError` at the stage where a kubelet would."""
    online = machine.cpus.bits
    cpus = _parse_reserved_cpus(config.reserved_system_cpus, machine, machine.offline.bits if allow_offline else 0)
    kube, system = dict(config.kube_reserved), dict(config.system_reserved)
    if cpus:
        # An explicit list replaces both amounts of CPU: a kubelet overrides systemReserved and drops kubeReserved.
        kube.pop("cpu", None)
        system["cpu"] = str((cpus & online).bit_count())
    kube_amounts = _parse_reserved("kubeReserved", "--kube-reserved", kube)
    system_amounts = _parse_reserved("systemReserved", "--system-reserved", system)
    capacity = node_capacity(machine)
    evicted = _hard_eviction_amounts(config, capacity)
    total: Amounts = {}
    # Only resources of the capacity count: a reservation of ephemeral-storage or pid needs no check here (memory-device
    # 1.2).
    for name in capacity:
        amount = Quantity(0)
        for part in (system_amounts, kube_amounts, evicted):
            amount = amount.add(part.get(name, ZERO))
        if not amount.is_zero():
            total[name] = amount
    return Reservations(cpus, total)


def _parse_reserved_cpus(text: str, machine: Machine, may_miss: Bits) -> Bits:
    stage = "reservedSystemCPUs"
    if not text:
        return 0
    try:
        known = CPUTopology(machine).all_cpus
    except TopologyError as error:
        raise StartError(stage, _NO_TOPOLOGY, error=str(error)) from None
    try:
        cpus = parse_bits(text)
    except CPUSetError as error:
        raise StartError(stage, _UNREADABLE_CPUS, error=str(error)) from None
    if cpus & ~(known | may_miss) or (cpus and not cpus & known):
        raise StartError(stage, _NOT_ONLINE, cpus=text, online=format_bits(known))
    return cpus


def _parse_reserved(stage: str, flag: str, amounts: Mapping[str, str]) -> Amounts:
    parsed: Amounts = {}
    for name in sorted(amounts):
        problem = ""
        # A kubelet refuses every other key (cpu-topology 2.1).
        if name not in _RESERVABLE:
            problem = f"cannot reserve {quote(name)} resource"
        else:
            try:
                parsed[name] = Quantity.parse(amounts[name])
                if parsed[name].sign() < 0:
                    problem = f"resource quantity for {quote(name)} cannot be negative: {parsed[name]}"
            except QuantityError as error:
                problem = f"failed to parse quantity {quote(amounts[name])} for {quote(name)} resource: {error}"
        if problem:
            raise StartError(stage, _UNREADABLE_AMOUNT, flag=flag, error=problem)
    return parsed


def unreadable_amounts(config: KubeletConfig) -> Iterator[tuple[str, StartError]]:
    """Yield the field of each reserved amount that a kubelet cannot read on any machine, and the error of its start."""
    for stage, flag, amounts in (
        ("kubeReserved", "--kube-reserved", config.kube_reserved),
        ("systemReserved", "--system-reserved", config.system_reserved),
    ):
        for name, amount in amounts.items():
            # An explicit list of CPUs replaces both amounts of CPU before they are read.
            if name == "cpu" and config.reserved_system_cpus:
                continue
            try:
                _parse_reserved(stage, flag, {name: amount})
            except StartError as error:
                yield f"{stage}[{name}]", error


def node_capacity(machine: Machine) -> Amounts:
    """Return the node's capacity as the container manager knows it at start: cpu, memory, huge pages (memory-device
    3.8)."""
    capacity = {"cpu": Quantity.milli(machine.cpu_count * 1000), "memory": Quantity.of(machine.memory, BINARY_SI)}
    pages: dict[int, int] = {}
    for node in machine.nodes:
        for pool in node.hugepages:
            pages[pool.page_size_ki] = pages.get(pool.page_size_ki, 0) + pool.bytes
    for size, amount in pages.items():
        capacity[hugepage_resource(size)] = Quantity.of(amount, BINARY_SI)
    return capacity


def _hard_eviction_amounts(config: KubeletConfig, capacity: Amounts) -> Amounts:
    """Return the hard eviction thresholds that reduce node allocatable: memory alone."""
    try:
        thresholds = parse_hard_thresholds(config.eviction_thresholds)
    except ThresholdError as error:
        raise StartError(error.field, _UNREADABLE_THRESHOLD, error=str(error), remedy=error.remedy) from None
    memory = thresholds.get("memory.available")
    # Of all signals only `memory.available` reduces memory for pods (memory-device 1.2).
    return {} if memory is None else {"memory": memory.of(capacity["memory"])}


def refuse_soft_thresholds(config: KubeletConfig) -> None:
    """Raise `StartError` for soft thresholds, grace periods and minimum reclaims that a kubelet cannot read; it reports
    them after it built its managers."""
    try:
        check_soft_thresholds(config.eviction_soft, config.eviction_soft_grace_period, config.eviction_minimum_reclaim)
    except ThresholdError as error:
        raise StartError(error.field, _UNREADABLE_SOFT_THRESHOLD, error=str(error), remedy=error.remedy) from None


def validate_node_allocatable(total: Amounts, machine: Machine) -> None:
    """Refuse reservations above capacity (memory-device 3.8). Raises `StartError`."""
    capacity = node_capacity(machine)
    problems = [
        f"Resource {quote(name)} has a reservation of {_format_go_struct(amount)} but capacity of "
        f"{_format_go_struct(capacity[name])}. Expected capacity >= reservation."
        for name, amount in total.items()
        if capacity[name].sub(amount).sign() < 0
    ]
    if problems:
        raise StartError("nodeAllocatable", _ABOVE_CAPACITY, problems=" ".join(problems))


def _format_go_struct(quantity: Quantity) -> str:
    """Return a quantity as upstream prints it by mistake: its internal fields."""
    scale = quantity.scale
    unscaled = quantity.nano // 10 ** (9 + scale) if scale > -9 else quantity.nano
    return f"{{{{{unscaled} {scale}}} {{<nil>}} {quantity.text or ''} {quantity.format}}}"


def parse_reserved_memory(
    config: KubeletConfig, machine: Machine, total: Mapping[str, Quantity]
) -> dict[int, dict[str, int]]:
    """Return `reservedMemory` in bytes by NUMA node and resource, checked against node allocatable (memory-device 1.2).

    Raises `StartError` at stage `memoryManager`.
    """
    stage = "memoryManager"
    known = {node.id for node in machine.nodes}
    sums: Amounts = {}
    parsed: list[tuple[int, str, Quantity]] = []
    for reservation in config.reserved_memory:
        if reservation.numa_node not in known:
            raise StartError(stage, _UNKNOWN_NODE, node=reservation.numa_node)
        for name, text in reservation.limits.items():
            amount = _parse_amount(stage, text)
            parsed.append((reservation.numa_node, name, amount))
            sums[name] = amount.add(sums.get(name, ZERO))
    _check_totals(stage, sums, total)
    reserved: dict[int, dict[str, int]] = {node.id: {} for node in machine.nodes}
    for node, name, amount in parsed:
        size = amount.as_int64()
        if size is None:
            raise StartError(stage, _NO_INT64)
        # A later element for the same node and type overwrites an earlier one, although the sum counted both
        # (memory-device 4.10).
        reserved[node][name] = size
    return reserved


def refuse_reserved_memory(config: KubeletConfig) -> None:
    """Raise `StartError` for a `reservedMemory` that every machine refuses. Nothing is known where the threshold of
    memory is a share of the machine's. The other amounts of the configuration must be readable."""
    stage = "memoryManager"
    sums: Amounts = {}
    for reservation in config.reserved_memory:
        for name, text in reservation.limits.items():
            sums[name] = _parse_amount(stage, text).add(sums.get(name, ZERO))
    evicted = parse_hard_thresholds(config.eviction_thresholds).get("memory.available")
    if evicted is not None and evicted.quantity is None:
        return
    total = ZERO if evicted is None or evicted.quantity is None else evicted.quantity
    for reserved in (config.kube_reserved, config.system_reserved):
        total = total.add(Quantity.parse(reserved.get("memory", "0")))
    _check_totals(stage, sums, {"memory": total})


def _check_totals(stage: str, sums: Mapping[str, Quantity], total: Mapping[str, Quantity]) -> None:
    """Compare reserved memory with node allocatable. Raises `StartError`."""
    wanted = {name for name in total if name == "memory" or name.startswith("hugepages-")}
    for name in sorted({*sums, *wanted}):
        # Upstream compares all memory types of either side, so an absent reservation is an error as well.
        have, need = sums.get(name, ZERO), total.get(name, ZERO)
        if have != need:
            facts = {"amount": quote(have.canonical()), "reserved": quote(need.canonical()), "resource": quote(name)}
            raise StartError(stage, _OTHER_TOTAL, **facts)


def _parse_amount(stage: str, text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except QuantityError as error:
        raise StartError(stage, _UNREADABLE_MEMORY, error=str(error)) from None


_NONE: Mapping[str, int] = {}


class NodeResources(NamedTuple):
    """`status.capacity` and `status.allocatable`. Ephemeral storage is absent, as no root file system is known."""

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
    """Return the node's capacity, and what is left for pods after `reservation` (node allocatable reservation).

    Huge pages are subtracted from the memory for pods, because the machine's memory includes them.
    """
    capacity = node_capacity(machine)
    capacity["pods"] = Quantity.of(max_pods(machine, config))
    allocatable = {name: _subtract(amount, reservation.get(name)) for name, amount in capacity.items()}
    for name, count in device_capacity.items():
        capacity[name] = Quantity.of(count)
    for name, count in device_allocatable.items():
        allocatable[name] = Quantity.of(count)
    for name, amount in capacity.items():
        if name.startswith(HUGEPAGES_PREFIX):
            allocatable["memory"] = _subtract(allocatable["memory"], amount)
    return NodeResources(capacity, allocatable)


def max_pods(machine: Machine, config: KubeletConfig) -> int:
    """Return the most pods a kubelet admits at a time."""
    if config.pods_per_core > 0:
        return min(machine.cpu_count * config.pods_per_core, config.max_pods)
    return config.max_pods


def _subtract(amount: Quantity, taken: Quantity | None) -> Quantity:
    """Return `amount` less `taken`, at least zero."""
    if taken is None:
        return amount
    rest = amount.sub(taken)
    return rest if rest.sign() >= 0 else Quantity.of(0, amount.format)


def exclusive_cpus(cpus: int, *, reserved: int, kept_shared: int = 0) -> int:
    """Return how many of a node's CPUs can be exclusive at most (KEP-4540).

    `kept_shared` CPUs always stay for containers without their own: an option that the KEP considered and archived; a
    node could report the result as one more allocatable figure, `exclusive-cpu`.
    """
    return max(0, cpus - reserved - kept_shared)
