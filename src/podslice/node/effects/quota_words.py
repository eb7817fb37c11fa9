"""Whether a CPU quota throttles a pod's containers, and why in this release, in one sentence (cpu-topology 6.9)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from podslice.api.pod.demand import containers_in_order
from podslice.api.pod.spec import Container, Pod
from podslice.node.effects.container_cgroup import implied_limit
from podslice.values.releases.release import Release
from podslice.values.releases.table import RELEASES

_GATE = "DisableCPUQuotaWithExclusiveCPUs"
_MOST_NAMED = 4


def quota_sentence(
    pod: Pod, gates: Mapping[str, bool], release: Release, owners: Collection[str], *, cfs_quota: bool = True
) -> str:
    """Return a sentence about CPU quotas of a defaulted pod, empty where no container has a CPU limit.

    `owners` are the containers that own all CPUs that they run on; `cfs_quota` is the kubelet's `cpuCFSQuota`.
    """
    limits = {one.name: _limit(pod, one, gates) for one in containers_in_order(pod)}
    limited = {name: milli for name, milli in limits.items() if milli > 0}
    if not limited:
        return ""
    if not cfs_quota:
        return "CPU quota: none, because cpuCFSQuota is false in the kubelet's configuration."
    owning = [name for name in limited if name in owners]
    sharing = [name for name in limited if name not in owners]
    parts = []
    if owning and gates[_GATE]:
        parts.append(f"none for {_names(owning)}, which {_own(owning)} ({_why_on(release)})")
    elif owning:
        parts.append(f"{_amounts(owning, limited)} although {_own(owning, 'it', 'they')} ({_why_off(release)})")
    if sharing:
        parts.append(_amounts(sharing, limited))
    return f"CPU quota: {'; '.join(parts)}."


def _limit(pod: Pod, container: Container, gates: Mapping[str, bool]) -> int:
    return implied_limit(pod, container, "cpu", gates).milli_value()


def _own(names: list[str], one: str = "", several: str = "") -> str:
    text = f"{one} owns its CPUs" if len(names) == 1 else f"{several} own their CPUs"
    return text.strip()


def _names(names: Iterable[str]) -> str:
    known = list(names)
    more = f" and {len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
    return ", ".join(known[:_MOST_NAMED]) + more


def _amounts(names: Iterable[str], limited: Mapping[str, int]) -> str:
    return _names(f"{name} {_cpus(limited[name])}" for name in names)


def _cpus(milli: int) -> str:
    whole, rest = divmod(milli, 1000)
    return f"{milli}m" if rest else f"{whole} CPU{'' if whole == 1 else 's'}"


def _why_on(release: Release) -> str:
    return f"feature gate {_GATE}" + (f", on since Kubernetes 1.{_first()}" if release.minor >= _first() else "")


def _why_off(release: Release) -> str:
    if release.minor < _first():
        return f"Kubernetes {release} lacks feature gate {_GATE}, which is on since 1.{_first()}"
    return f"feature gate {_GATE} is off"


def _first() -> int:
    """Return the first release that has the gate."""
    return min(one.minor for one in RELEASES.values() if _GATE in one.gates)
