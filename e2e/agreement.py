"""Does a node do what the agent says? `podslice status`, the pods' cgroups and the masks of all their processes."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from podslice.values.cpuset import parse_bits

Json = dict[str, Any]


def cgroup_owner(path: str) -> str:
    """The id of the container, or `pod` and the pod's UID, that a cgroup belongs to, with either cgroup driver."""
    last = path.rpartition("/")[2]
    if last.endswith(".slice"):
        return last.rpartition("-")[2].removesuffix(".slice").replace("_", "-")
    return last.removeprefix("cri-containerd-").removesuffix(".scope")


def disagreements(
    status: Json, cgroups: dict[str, Json], running: dict[str, str], strangers: Container[str] = ()
) -> list[str]:
    """A line for each thing that is not as it should be, none where all is well. `cgroups` are those of the node's pods
    by path; `running` are the containers of scenarios that the API server says run: a name for each id. `strangers` are
    the pods that were made without the agent."""
    by_id = {cgroup_owner(path): path for path in cgroups}
    found = list(_of_sets(status))
    listed: set[str] = set()
    for pod in status["pods"]:
        for container in pod["containers"]:
            name = f"{pod['name']}/{container['name']}"
            listed.add(container["id"])
            if container["stranger"] and container["id"] in running and pod["name"] not in strangers:
                found.append(f"{name} is a stranger")
            if container["id"] in by_id:
                path = by_id[container["id"]]
                found += _of_container(name, container, cgroups[path])
                if not any(one["isolation"] == "pod" for one in pod["containers"]):
                    found += _quota(f"the pod of {name}", container, cgroups[path.rpartition("/")[0]])
            elif container["id"] in running:
                found.append(f"{name} has no cgroup")
    return found + [f"{name} runs and is not in the status" for id, name in running.items() if id not in listed]


def _of_container(name: str, container: Json, group: Json) -> Iterator[str]:
    for file, mask, member in (("cpuset.cpus", "cpus", "cpus"), ("cpuset.mems", "mems", "memoryNodes")):
        expected = container[member]
        if not expected:
            continue
        if parse_bits(group[file]) != parse_bits(expected):
            yield f"{name}: {file} is {group[file]!r}, the status says {expected}"
        for process in group["processes"]:
            if parse_bits(process[mask]) != parse_bits(expected):
                yield f"{name}: process {process['pid']} has {mask} {process[mask]}, the status says {expected}"
    yield from _quota(name, container, group)


def _quota(what: str, container: Json, group: Json) -> Iterator[str]:
    """Yield owners of CPUs that are throttled, by their own cgroup or their pod's. Where others of the pod share the
    rest of the pod's CPUs, the pod keeps its quota."""
    if container["quota"] == "off" and not group["cpu.max"].startswith("max "):
        yield f"{what}: cpu.max is {group['cpu.max']}, the status says the quota is off"


def _of_sets(status: Json) -> Iterator[str]:
    """Yield owners whose CPUs another has too, and containers of the shared pool that run elsewhere."""
    pools = status["pools"]
    shared, owned = parse_bits(pools["shared"]), parse_bits(pools["reserved"])
    for pod in status["pods"]:
        for container in pod["containers"]:
            cpus, name = parse_bits(container["cpus"]), f"{pod['name']}/{container['name']}"
            if container["isolation"] == "host" and container["cpus"] and cpus != shared:
                yield f"{name} shares {container['cpus']}, the shared pool is {pools['shared']}"
            if container["isolation"] == "container":
                if cpus & (shared | owned):
                    yield f"{name} owns {container['cpus']}, of which others have some"
                owned |= cpus
