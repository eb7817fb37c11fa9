"""What objects of a cluster tell of a node, and what has to be assumed where they do not.

A Node has amounts and labels, a NodeResourceTopology has amounts of NUMA nodes; neither has numbers and cores of CPUs.
A machine is made of what is told and the plainest hardware that fits it; each assumption is a line for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from podslice.machine.build import MAX_CPUS, CPUFacts, NUMANodeFacts, build_nodes, check_machine
from podslice.machine.devices import DeviceInventory
from podslice.machine.model import HugePages, Machine
from podslice.values.decoding import abbreviate
from podslice.values.errors import InputError
from podslice.values.quantity import Quantity, QuantityError

HUGE_PAGES = "hugepages-"
SYSTEM_MEMORY = 100 << 20
"""What a kubelet keeps by its default `evictionHard`."""


class DescribedNode(NamedTuple):
    """A machine and what comes with it: fields of a KubeletConfiguration, and devices. `assumed` are lines about what
    nobody said of the machine, `settled` about what nobody said of the configuration."""

    machine: Machine
    fields: Mapping[str, Any] = {}
    devices: DeviceInventory | None = None
    assumed: tuple[str, ...] = ()
    settled: tuple[str, ...] = ()


class Zone(NamedTuple):
    """A NUMA node: its CPUs, memory in bytes, huge pages in bytes by page size in KiB, distances by NUMA node, empty
    where they are not told."""

    id: int
    cpus: int
    memory: int
    hugepages: Mapping[int, int] = {}
    distances: tuple[int, ...] = ()


def machine_of(
    zones: Sequence[Zone], *, threads: int, name: str, architecture: str = "", system: str = "linux"
) -> Machine:
    """Each zone a socket of its own with equal cores, CPUs numbered as Linux does on such machines: first the first
    thread of every core, then the second ones. Raises `InputError`."""
    if sum(zone.cpus for zone in zones) > MAX_CPUS:
        raise InputError(
            f"has more CPUs than Linux supports, {sum(zone.cpus for zone in zones)}", remedy=f"at most {MAX_CPUS}"
        )
    cores = [zone for zone in zones for _ in range(zone.cpus // threads)]
    facts = (
        CPUFacts(thread * len(cores) + core, core, zone.id, zone.id)
        for thread in range(threads)
        for core, zone in enumerate(cores)
    )
    nodes = (NUMANodeFacts(zone.id, zone.memory, _pools(zone), zone.distances or None) for zone in zones)
    return check_machine(
        Machine(nodes=build_nodes(facts, nodes), name=name, architecture=architecture, operating_system=system)
    )


def _pools(zone: Zone) -> tuple[HugePages, ...]:
    return tuple(HugePages(size, amount // (size * 1024)) for size, amount in sorted(zone.hugepages.items()))


def first_cpus(machine: Machine, wanted: Mapping[int, int]) -> list[int]:
    """The first so many CPUs of each NUMA node, whole cores first to last."""
    found: list[int] = []
    for node in machine.nodes:
        cores = sorted(sorted(core.threads) for core in node.cores)
        found += [cpu for core in cores for cpu in core][: wanted.get(node.id, 0)]
    return sorted(found)


def threads_of(amounts: Sequence[int], label: str = "", *, architecture: str = "") -> tuple[int, str]:
    """Threads of a core for these numbers of CPUs, and the line about it; `label` is what is told, true or false."""
    if label in ("true", "false"):
        threads = 2 if label == "true" else 1
        odd = next((cpus for cpus in amounts if cpus % threads), None)
        if odd is not None:
            raise InputError(f"{odd} CPUs are no whole cores of 2 threads", remedy="the label says multithreading")
        return threads, ""
    if architecture == "arm64":
        return 1, "one thread in each core, as on most arm64 machines"
    if all(cpus % 2 == 0 for cpus in amounts):
        return 2, "two threads in each core"
    return 1, "one thread in each core, because a number of CPUs is odd"


def whole(value: Any, path: str) -> int:
    """A whole amount, not negative. Raises `InputError`."""
    amount = quantity(value, path)
    if amount.nano % 10**9 or amount.overflows():
        raise InputError(f"{abbreviate(value)} is not a whole number", path=path)
    return amount.value()


def quantity(value: Any, path: str) -> Quantity:
    """An amount, not negative. Raises `InputError`."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(f"{abbreviate(value)} is not an amount", path=path, remedy="write 16 or 64Gi")
    try:
        amount = Quantity.parse(str(value))
    except QuantityError as error:
        raise InputError(
            f"{abbreviate(value)} is not an amount: {error}", path=path, remedy="write 16 or 64Gi"
        ) from None
    if amount.sign() < 0:
        raise InputError(f"{abbreviate(value)} is negative", path=path)
    return amount


def page_size(resource: str, path: str) -> int:
    """KiB of a page of `hugepages-2Mi`. Raises `InputError`."""
    size = whole(resource.removeprefix(HUGE_PAGES), path)
    if size < 1024 or size % 1024:
        raise InputError(f"{resource} names no page size", path=path, remedy="hugepages-2Mi, hugepages-1Gi")
    return size // 1024


def mapping(value: Any, path: str) -> Mapping[str, Any]:
    """A map with text for keys; a missing one is empty. Raises `InputError`."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"{abbreviate(value)} is not a map", path=path)
    return {str(key): one for key, one in value.items()}


def listing(value: Any, path: str) -> list[Mapping[str, Any]]:
    """A list of maps; a missing one is empty. Raises `InputError`."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise InputError(f"{abbreviate(value)} is not a list of objects", path=path)
    return value


def count(number: int, what: str) -> str:
    """`1 CPU`, `2 CPUs`."""
    return f"{number} {what}{'' if number == 1 else 's'}"
