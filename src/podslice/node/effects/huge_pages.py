"""Huge page limits of cgroups (pod-level-resources 8.2, 8.3)."""

from __future__ import annotations

from collections.abc import Iterable

from podslice.api.pod.demand import HUGEPAGES_PREFIX
from podslice.api.pod.spec import ResourceList
from podslice.machine.model import Machine
from podslice.values.golang import U64
from podslice.values.quantity import Quantity, QuantityError

_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def page_sizes(machine: Machine) -> tuple[int, ...]:
    """Return the sizes in bytes of a machine's huge pages, in its own order."""
    return tuple(dict.fromkeys(pages.page_size_ki << 10 for pages in machine.all_hugepages))


def page_size_of(resource: str) -> int:
    """Return the bytes per page of a resource such as `hugepages-2Mi`; 0 for a name without a size."""
    try:
        return Quantity.parse(resource.removeprefix(HUGEPAGES_PREFIX)).value()
    except QuantityError:
        return 0


def page_size_name(size: int) -> str:
    """Return a page size as file names and the runtime interface write it: 2097152 is `2MB`."""
    unit = 0
    while size % 1024 == 0 and unit < len(_UNITS) - 1:
        size //= 1024
        unit += 1
    return f"{size}{_UNITS[unit]}"


def page_size_from_name(name: str) -> int:
    """Return the page size of a name: the inverse of `page_size_name`. Raises `ValueError`."""
    number = name.rstrip("BKMGTP")
    return int(number) << 10 * _UNITS.index(name[len(number) :])


def huge_page_limits(amounts: ResourceList) -> dict[int, int]:
    """Return bytes by page size; two names of one size add up."""
    limits: dict[int, int] = {}
    for name, quantity in amounts.items():
        if name.startswith(HUGEPAGES_PREFIX):
            size = page_size_of(name)
            limits[size] = limits.get(size, 0) + quantity.value()
    return limits


def pod_huge_page_limits(limits: dict[int, int], sizes: Iterable[int]) -> dict[int, int]:
    """Return the limits of a pod's cgroup: its own, and 0 for the machine's other page sizes. The runtime interface is
    unsigned, so a negative amount becomes a huge one."""
    return {size: limit & U64 for size, limit in {**dict.fromkeys(sizes, 0), **limits}.items()}


def container_huge_page_limits(limits: dict[int, int], sizes: Iterable[int]) -> dict[int, int]:
    """Return the limits of a container: one for every page size of the machine, 0 by default, and no others."""
    return {size: limits.get(size, 0) & U64 for size in sizes}
