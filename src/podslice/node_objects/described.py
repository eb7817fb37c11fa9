"""Nodes described by objects of a cluster, with assumptions where the objects say too little.

A Node has amounts and labels, a NodeResourceTopology has amounts of NUMA nodes; neither has numbers and cores of CPUs.
A machine is built of the reported facts and the plainest hardware that fits them; each assumption is a line for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from podslice.evidence.reported import ReportedNode
from podslice.machine.build import MAX_CPUS, CPUFacts, NUMANodeFacts, assume_threads, build_nodes, check_machine
from podslice.machine.devices import DeviceInventory
from podslice.machine.model import HugePages, Machine
from podslice.values.assumption import Assumption
from podslice.values.decoding import abbreviate
from podslice.values.errors import InputError
from podslice.values.quantity import Quantity, QuantityError

HUGE_PAGES = "hugepages-"
SYSTEM_MEMORY = 100 << 20
"""Bytes that a kubelet keeps by its default `evictionHard`."""


class DescribedNode(NamedTuple):
    """A machine, fields of a KubeletConfiguration, and devices. `assumed` are facts of the machine that no object
    gives, `settled` fields of the configuration that none gives. `measured`: the machine was read from the system of a
    node, not from a description. `reported` is the status of its Node object, None without one; amounts of memory are
    known to `memory_unit` bytes. `taken` says what comes from other files of the node."""

    machine: Machine
    fields: Mapping[str, Any] = {}
    devices: DeviceInventory | None = None
    assumed: tuple[Assumption, ...] = ()
    settled: tuple[Assumption, ...] = ()
    measured: bool = False
    reported: ReportedNode | None = None
    memory_unit: int = 1
    taken: tuple[str, ...] = ()

    @property
    def assumed_of_devices(self) -> tuple[Assumption, ...]:
        """The assumptions about devices."""
        return tuple(one for one in self.assumed if one.about == "devices")

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of the machine, and what is assumed of it, each once."""
        return tuple(dict.fromkeys((*self.machine.warnings, *(f"assumed: {line}" for line in self.assumed))))

    def without_devices(self) -> DescribedNode:
        """Return the node without its devices and what is assumed of them, for a user who names the devices."""
        kept = tuple(one for one in self.assumed if one.about != "devices")
        return self._replace(devices=None, assumed=kept)


class Zone(NamedTuple):
    """A NUMA node: its CPUs, memory in bytes, huge pages in bytes by page size in KiB, distances by NUMA node, empty
    where they are not reported."""

    id: int
    cpus: int
    memory: int
    hugepages: Mapping[int, int] = {}
    distances: tuple[int, ...] = ()


def build_machine(
    zones: Sequence[Zone], *, threads: int, name: str, architecture: str = "", system: str = "linux"
) -> Machine:
    """Build a machine with each zone on a socket of its own with equal cores, CPUs numbered as Linux does on such
    machines: the first threads of all cores, then the second ones. Raises `InputError`."""
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
    """Return the first CPUs of each NUMA node, as many as `wanted` has for it, core by core."""
    found: list[int] = []
    for node in machine.nodes:
        cores = sorted(sorted(core.threads) for core in node.cores)
        found += [cpu for core in cores for cpu in core][: wanted.get(node.id, 0)]
    return sorted(found)


def guess_threads(amounts: Sequence[int], label: str = "", *, architecture: str = "") -> tuple[int, str]:
    """Return the threads per core for nodes with these numbers of CPUs, and the line about the assumption. `label`: the
    multithreading label, `true`, `false` or empty. Raises `InputError` where it contradicts the numbers."""
    if label in ("true", "false"):
        threads = 2 if label == "true" else 1
        odd = next((cpus for cpus in amounts if cpus % threads), None)
        if odd is not None:
            raise InputError(f"{odd} CPUs are not whole cores of 2 threads", remedy="the label says multithreading")
        return threads, ""
    return assume_threads(amounts, architecture)


def parse_whole(value: Any, path: str) -> int:
    """Parse a whole amount that is not negative. Raises `InputError`."""
    amount = parse_quantity(value, path)
    if amount.nano % 10**9 or amount.overflows():
        raise InputError(f"{abbreviate(value)} is not a whole number", path=path)
    return amount.value()


def parse_quantity(value: Any, path: str) -> Quantity:
    """Parse an amount that is not negative. Raises `InputError`."""
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


def parse_page_size(resource: str, path: str) -> int:
    """Return the page size of a resource such as `hugepages-2Mi`, in KiB. Raises `InputError`."""
    size = parse_whole(resource.removeprefix(HUGE_PAGES), path)
    if size < 1024 or size % 1024:
        raise InputError(f"{resource} names no page size", path=path, remedy="hugepages-2Mi, hugepages-1Gi")
    return size // 1024


def require_mapping(value: Any, path: str) -> Mapping[str, Any]:
    """Return a map with text for keys; a missing one is empty. Raises `InputError`."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"{abbreviate(value)} is not a map", path=path)
    return {str(key): one for key, one in value.items()}


def require_list(value: Any, path: str) -> list[Mapping[str, Any]]:
    """Return a list of maps; a missing one is empty. Raises `InputError`."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise InputError(f"{abbreviate(value)} is not a list of objects", path=path)
    return value
