"""cgroup v2 files as the kernel shows them after the kubelet and the runtime have written them.

The kernel rounds: memory to whole pages and huge pages to whole huge pages, both downwards. A file that is never
written shows its default, so every function here names the files whatever their value.
"""

from __future__ import annotations

from collections.abc import Mapping

from podslice.node.effects.cgroup import PodCgroup
from podslice.node.effects.container_cgroup import OOM_GROUP, SWAP_MAX, LinuxResources
from podslice.node.effects.cpu_weight import DEFAULT_PERIOD_US, shares_to_runtime_weight, shares_to_weight
from podslice.node.effects.huge_pages import page_size_name, pod_huge_page_limits
from podslice.node.effects.memory_qos import HIGH, LOW, MIN
from podslice.node.effects.settings import CgroupSettings

Files = dict[str, str]
"""Contents by file name."""
MAX = "max"
_WEIGHT_DEFAULT = 100


def pod_files(cgroup: PodCgroup, memory_qos: Mapping[str, int], settings: CgroupSettings) -> Files:
    """Return the files of a pod's cgroup. `memory_qos` is empty without gate MemoryQoS."""
    return {
        "cpu.weight": str(shares_to_weight(cgroup.cpu_shares)),
        "cpu.max": cpu_max(cgroup.cpu_quota or 0, cgroup.cpu_period or 0),
        **memory_files(cgroup.memory or 0, memory_qos, settings),
        **huge_page_files(pod_huge_page_limits(cgroup.huge_pages, settings.huge_pages)),
    }


def container_files(resources: LinuxResources, settings: CgroupSettings, *, cpus: str = "", mems: str = "") -> Files:
    """Return the files of a container's cgroup, as its runtime writes them; `cpus` and `mems` where the managers pin
    it. `resources.unified` holds what MemoryQoS adds."""
    to_weight = shares_to_weight if settings.linear_runtime_weight else shares_to_runtime_weight
    files = {
        "cpu.weight": str(to_weight(resources.cpu_shares)) if resources.cpu_shares else str(_WEIGHT_DEFAULT),
        "cpu.max": cpu_max(resources.cpu_quota, resources.cpu_period),
        **memory_files(resources.memory_limit, resources.unified, settings),
        OOM_GROUP: str(resources.unified.get(OOM_GROUP, 0)),
        **huge_page_files(resources.huge_pages),
    }
    if SWAP_MAX in resources.unified:
        files[SWAP_MAX] = _pages(resources.unified[SWAP_MAX], settings.page_size)
    if cpus:
        files["cpuset.cpus"] = cpus
    if mems:
        files["cpuset.mems"] = mems
    return files


def cpu_max(quota: int, period: int) -> str:
    """Return the content of cpu.max; a quota that is not positive means no limit."""
    return f"{quota if quota > 0 else MAX} {period or DEFAULT_PERIOD_US}"


def memory_files(limit: int, memory_qos: Mapping[str, int], settings: CgroupSettings) -> Files:
    """Return memory.min, low, high and max; a limit that is not positive means none."""
    page = settings.page_size
    return {
        MIN: _pages(memory_qos.get(MIN, 0), page),
        LOW: _pages(memory_qos.get(LOW, 0), page),
        HIGH: _pages(memory_qos[HIGH], page) if HIGH in memory_qos else MAX,
        "memory.max": _pages(limit, page) if limit > 0 else MAX,
    }


def huge_page_files(limits: Mapping[int, int]) -> Files:
    """Return hugetlb.SIZE.max for every page size given."""
    return {f"hugetlb.{page_size_name(size)}.max": _pages(limit, size) for size, limit in limits.items() if size}


def _pages(amount: int, page: int) -> str:
    return str(amount // page * page)
