"""Auditing a node: whether its containers have what the state assigns, and which others run on exclusive CPUs.

Works on the state files of a kubelet or of the agent and on the cgroup tree, without talking to either. Containers get
their names from the kubelet's log folder where it can be read; without names a container is matched by its set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from podslice.audit.containers import POD, FoundContainer, find_containers
from podslice.audit.promises import find_outside_policy, promised_rows
from podslice.audit.report import AuditFinding, AuditReport
from podslice.audit.state import RecordedState
from podslice.config.policy import PodslicePolicy
from podslice.host.filesystem import FileSystem
from podslice.host.kernel.cgroup2 import CgroupTree, CgroupValues
from podslice.values.cpuset import Bits, CPUSetError, format_bits, parse_bits
from podslice.values.quantity import cpus_text

_ALLOWED = re.compile(r"^Cpus_allowed_list:\s*(\S+)$", re.MULTILINE)
_NAME = re.compile(r"^Name:\s*(.*)$", re.MULTILINE)
_PARENT = re.compile(r"^PPid:\s*(\d+)$", re.MULTILINE)
_KERNEL_THREADS = 2
_MOST_PROCESSES = 200_000


def audit(
    state: RecordedState,
    tree: CgroupTree,
    proc: FileSystem | None,
    names: Mapping[str, str],
    *,
    policy: PodslicePolicy | None = None,
) -> AuditReport:
    """Audit the node once. `proc` holds `/proc` at its root, None where the node's processes cannot be seen. `policy`:
    report assignments that it would not have allowed, too."""
    containers = find_containers(tree)
    findings = list(state.problems)
    by_pod: dict[str, list[FoundContainer]] = {}
    for container in containers:
        by_pod.setdefault(container.pod, []).append(container)
    for uid in sorted({*state.assignments, *state.pod_cpus, *state.memory}):
        findings += _check_pod(uid, by_pod.get(uid, []), state, tree, names)
    promised = tuple(promised_rows(state.promises, state.sets))
    if policy is not None:
        findings += find_outside_policy(policy, promised, state.promises, state.sets)
    findings += _intruding_containers(containers, state, tree, names)
    outsiders: dict[str, int] = {}
    if proc is not None:
        by_path = {container.path: container for container in containers}
        outsiders, processes = _processes(state, tree, proc, by_path)
        findings += processes
    return AuditReport(
        findings=tuple(findings),
        pods=len(by_pod),
        containers=len(containers),
        exclusive=format_bits(state.owned),
        shared=format_bits(state.default),
        outsiders=outsiders,
        processes=proc is not None,
        promised=promised,
    )


def _check_pod(
    uid: str,
    found: list[FoundContainer],
    state: RecordedState,
    tree: CgroupTree,
    names: Mapping[str, str],
) -> Iterator[AuditFinding]:
    """Compare every assignment of a pod with the containers it has."""
    if not found:
        text = "the state holds resources for a pod that has no containers"
        yield AuditFinding("missing", f"pod {uid}", format_bits(state.of_pod(uid)), "", text)
        return
    yield from _check_pod_limit(uid, found[0], state, tree)
    named = {names[c.id]: c for c in found if c.id in names}
    for name in sorted({*state.assignments.get(uid, {}), *state.memory.get(uid, {})}):
        cpus = state.assignments.get(uid, {}).get(name, 0)
        mems = state.memory.get(uid, {}).get(name, 0)
        where = f"pod {uid} container {name}"
        if name in named:
            yield from _check_container(where, named[name], cpus, mems, state, uid, tree)
        # Without names, some container must have the set; which one is unknown.
        elif cpus and not named and not any(_effective(tree, c)[0] == cpus for c in found):
            have = ", ".join(sorted(format_bits(_effective(tree, c)[0]) for c in found))
            yield AuditFinding("cpus", where, format_bits(cpus), have, "no container of the pod has this set")


def _check_container(
    where: str, container: FoundContainer, cpus: Bits, mems: Bits, state: RecordedState, uid: str, tree: CgroupTree
) -> Iterator[AuditFinding]:
    have_cpus, have_mems = _effective(tree, container)
    share = state.promises.mixed.get(uid, {}).get(where.rpartition(" ")[2])
    if share is not None and have_cpus == cpus:
        text = "has its exclusive CPUs and none of the shared ones"
        yield AuditFinding("cpus", where, f"{format_bits(cpus)} and shared ones", format_bits(cpus), text)
    elif share is not None and not cpus & ~have_cpus:
        have_cpus = cpus
    if state.promises.hides_smt(uid, where.rpartition(" ")[2], cpus, have_cpus):
        have_cpus = cpus
    # During a resize or a move, the kernel may have either side.
    if cpus and have_cpus not in (cpus, *state.promises.sides(uid, where.rpartition(" ")[2])):
        text = "runs on other CPUs than assigned"
        if offline := _offline(tree, cpus):
            text = f"CPUs {format_bits(offline)} of it are offline: it runs on the rest"
        yield AuditFinding("cpus", where, format_bits(cpus), format_bits(have_cpus), text)
    if mems and have_mems != mems:
        text = "takes memory from other nodes than assigned"
        yield AuditFinding("mems", where, format_bits(mems), format_bits(have_mems), text)
    values = tree.read(container.path)
    paid = -1 if share is None else share.exclusive * 1000 + share.remainder
    # In pods with pod-level resources the pod's cgroup holds the quota.
    limited = cpus and uid not in state.pod_cpus and values is not None and values.quota is not None
    if limited and values is not None and (values.quota or 0) * 1000 // values.period != paid:
        yield AuditFinding("quota", where, "max", str(values.quota), _quota_text(values, cpus))


def _offline(tree: CgroupTree, cpus: Bits) -> Bits:
    """Return those of the CPUs that are offline, by the effective set of the root cgroup; none where it has no such
    file."""
    values = tree.read("")
    online = None if values is None else values.cpus_effective
    return cpus & ~online if online else 0


def _quota_text(values: CgroupValues, cpus: Bits) -> str:
    """Explain a quota: one that differs from the CPUs comes from a resize."""
    requested = (values.quota or 0) * 1000 // values.period
    if requested == cpus.bit_count() * 1000:
        return "CFS quota throttles exclusive CPUs"
    return f"a resize to {cpus_text(requested)} was not carried out, the container keeps {cpus.bit_count()}"


def _check_pod_limit(uid: str, found: FoundContainer, state: RecordedState, tree: CgroupTree) -> Iterator[AuditFinding]:
    """Check that a pod that owns all its CPUs has them as its limit, or none."""
    owned = state.of_pod(uid).bit_count() * 1000
    values = tree.read(found.path.rpartition("/")[0])
    if uid not in state.pod_cpus or values is None or values.quota is None:
        return
    requested = values.quota * 1000 // values.period
    if requested != owned:
        text = f"a resize of the pod to {cpus_text(requested)} was not carried out, it keeps {cpus_text(owned)}"
        yield AuditFinding("quota", f"pod {uid}", "max", str(values.quota), text)


def _effective(tree: CgroupTree, container: FoundContainer) -> tuple[Bits, Bits]:
    values = tree.read(container.path)
    if values is None:
        return 0, 0
    # The effective set excludes offline CPUs; where the file is missing, the configured set must do.
    cpus = values.cpus_effective if values.cpus_effective is not None else values.cpus
    mems = values.mems_effective if values.mems_effective is not None else values.mems
    return cpus or 0, mems or 0


def _intruding_containers(
    containers: list[FoundContainer], state: RecordedState, tree: CgroupTree, names: Mapping[str, str]
) -> Iterator[AuditFinding]:
    """Find containers that may run on CPUs of another pod. A pod's sandbox container sleeps all day and is left out."""
    for container in containers:
        if names and container.id not in names:
            continue
        cpus, _ = _effective(tree, container)
        taken = cpus & state.owned & ~state.of_pod(container.pod)
        # Without names, at least a cgroup without processes is known to intrude on nothing.
        if taken and (names or len(tree.processes(container.path)) != 0):
            where = f"pod {container.pod} container {names.get(container.id, container.id[:12])}"
            text = "may run on CPUs that belong to others"
            yield AuditFinding("intruder", where, format_bits(cpus & ~taken), format_bits(taken), text)


def _processes(
    state: RecordedState, tree: CgroupTree, proc: FileSystem, containers: Mapping[str, FoundContainer]
) -> tuple[dict[str, int], list[AuditFinding]]:
    """Find processes by the CPUs that they may really run on (`sched_setaffinity` narrows a cpuset, and old sets can
    linger)."""
    outsiders: dict[str, int] = {}
    findings = []
    owned = state.owned
    for name in proc.entries("")[:_MOST_PROCESSES]:
        if not name.isdecimal():
            continue
        try:
            status, where = proc.read(f"{name}/status"), _cgroup_of(proc.read(f"{name}/cgroup"))
        except OSError:
            continue
        allowed, parent = _ALLOWED.search(status), _PARENT.search(status)
        # Kernel threads are children of kthreadd (PID 2); many are bound to one CPU by the kernel and cannot be moved.
        if allowed is None or (parent and int(parent[1]) == _KERNEL_THREADS) or int(name) == _KERNEL_THREADS:
            continue
        try:
            cpus = parse_bits(allowed[1]) & owned
        except CPUSetError:
            continue
        container = _container_of(where, containers)
        if container is None:
            # Processes of a pod outside its containers, such as its sandbox, are no outsiders.
            if cpus and not any(POD.search(part) for part in where.split("/")):
                outsiders[where or "/"] = outsiders.get(where or "/", 0) + 1
        elif cpus & ~state.of_pod(container.pod) & ~_effective(tree, container)[0]:
            title = _NAME.search(status)
            text = "may run outside its container's cpuset, on CPUs of others"
            label = f"process {name} ({title[1] if title else '?'}) in pod {container.pod}"
            findings.append(AuditFinding("intruder", label, "", format_bits(cpus), text))
    return outsiders, findings


def _container_of(path: str, containers: Mapping[str, FoundContainer]) -> FoundContainer | None:
    """Return the container of a cgroup; containers may have cgroups of their own inside."""
    while path:
        if path in containers:
            return containers[path]
        path = path.rpartition("/")[0]
    return None


def _cgroup_of(text: str) -> str:
    """Return the cgroup v2 path of a process, without leading slash."""
    for line in text.splitlines():
        if line.startswith("0::"):
            return line[3:].strip("/")
    return ""
