"""CPUs in cpu_manager_state that stay with pods and init containers that have ended."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from podslice.api.pod.spec import Pod
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.cpu.ended import IdleCPUs, describe_idle, describe_pools, idle_after_init, idle_of_gone_pods
from podslice.node.shared_pool import describe_pool_of
from podslice.values.cpuset import Bits, CPUSetError, parse_bits, union

_NOT_STARTED = ("Pending",)


class IdleState(NamedTuple):
    """Idle CPUs of a file, and the shared pool now and after the next admission."""

    idle: tuple[IdleCPUs, ...]
    now: Bits
    then: Bits


def find_idle(checkpoint: CPUCheckpoint, known: AbstractSet[str] | None, pods: Mapping[str, Pod]) -> IdleState:
    """Return what is idle in a file. `known` are the UIDs of the pods that the kubelet knows, None where that cannot be
    seen; `pods` are specifications by UID."""
    owners: dict[str, dict[str, Bits]] = {}
    try:
        now = parse_bits(checkpoint.default_cpuset)
        for uid, named in (checkpoint.entries or {}).items():
            owners[uid] = {name: parse_bits(text) for name, text in (named or {}).items()}
    except CPUSetError:
        return IdleState((), 0, 0)
    whole = checkpoint.pod_entries or {}
    gone: tuple[IdleCPUs, ...] = ()
    if known is not None:
        all_owners = {uid: {**owners.get(uid, {}), **({"": whole[uid]} if uid in whole else {})}
                      for uid in {**owners, **whole}}  # fmt: skip
        gone = tuple(idle_of_gone_pods(all_owners, known))
    over = {one.pod for one in gone}
    # The containers of a pod with pod-level resources share its CPUs, so none of them is idle.
    inits = {
        uid: init_names(pod)
        for uid, pod in pods.items()
        if uid not in over and uid not in whole and pod.status.phase not in _NOT_STARTED
    }
    then = now | union(one.cpus for one in gone)
    return IdleState((*gone, *idle_after_init(owners, inits)), now, then)


def init_names(pod: Pod) -> frozenset[str]:
    """Return the names of a pod's init containers that end."""
    return frozenset(one.name for one in pod.spec.init_containers if one.restart_policy != "Always")


def pool_text(checkpoint: CPUCheckpoint, pods: Mapping[str, Pod]) -> str:
    """Return who owns the CPUs that are not in the shared pool of a file; empty for files that cannot be read."""
    owned: dict[str, Bits] = {}
    try:
        for uid, named in (checkpoint.entries or {}).items():
            owned[_name(pods, uid)] = union(parse_bits(text) for text in (named or {}).values())
        for uid, whole in (checkpoint.pod_entries or {}).items():
            owned[_name(pods, uid)] = owned.get(_name(pods, uid), 0) | whole
        shared = parse_bits(checkpoint.default_cpuset)
    except CPUSetError:
        return ""
    text = describe_pool_of(shared, 0, {name: cpus for name, cpus in owned.items() if cpus})
    return f"{text}." if text else ""


def idle_text(state: IdleState, pods: Mapping[str, Pod]) -> str:
    """Return the sentences about idle CPUs, a line each; empty where none are."""
    lines = [describe_idle(one, _name(pods, one.pod)) for one in state.idle]
    if state.now != state.then:
        lines.append(describe_pools(state.now, state.then))
    return "\n".join(f"{line[0].upper()}{line[1:]}." for line in lines)


def _name(pods: Mapping[str, Pod], uid: str) -> str:
    pod = pods.get(uid)
    return uid if pod is None else pod.metadata.full_name
