"""Holdings of pods on a node, as plain texts by which two nodes are compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from podslice.api.pod.spec import Pod
from podslice.node.node import Node
from podslice.values.cpuset import format_bits
from podslice.values.errors import UpstreamDefectError

_CPUS, _MEMORY, _DEVICES, _VERDICT = "CPUs", "memory", "devices", "verdict"
_OOM = "oom_score_adj"
_PINNED = ("cpuset.cpus", "cpuset.mems")
Key = tuple[str, str, str]
"""Pod UID, container (empty: the pod), and what of it."""


class Difference(NamedTuple):
    """What of a pod differs between two nodes: its name, a sentence, and whether a running pod is harmed by it."""

    key: Key
    subject: str
    text: str
    harms: bool


class Held(NamedTuple):
    """What pods have on one node: text by key; and names of the pods by UID."""

    facts: Mapping[Key, str]
    names: Mapping[str, str]

    def refused(self, uid: str) -> str:
        """Return why a pod is refused; empty for one that is on the node."""
        return self.facts.get((uid, "", _VERDICT), "")

    def agrees(self, other: Held, difference: Difference) -> bool:
        """Whether two nodes have no such difference."""
        return self.facts.get(difference.key, "") == other.facts.get(difference.key, "")


def held_by(node: Node, pods: Sequence[Pod], refused: Mapping[str, str]) -> Held:
    """Return what these pods have on a node; `refused`: reason and message by UID."""
    facts, names, view = dict[Key, str](), dict[str, str](), node.view
    for pod in pods:
        uid = pod.metadata.uid or f"{pod.metadata.namespace}/{pod.metadata.name}"
        names[uid] = pod.metadata.full_name
        if uid not in view.pods:
            facts[uid, "", _VERDICT] = refused.get(uid, "refused")
            continue
        for name, cpus in view.owners.get(uid, {}).items():
            facts[uid, name, _CPUS] = format_bits(cpus)
        for name, blocks in view.blocks.get(uid, {}).items():
            nodes = {node for block in blocks for node in block.numa_affinity or ()}
            facts[uid, name, _MEMORY] = ",".join(map(str, sorted(nodes)))
        for name, held in view.device_ids.get(uid, {}).items():
            ids = [f"{kind} {','.join(one)}" for kind, places in held.items() for one in places.values() if one]
            facts[uid, name, _DEVICES] = "; ".join(sorted(ids))
        facts |= dict(_effects(node, uid))
    return Held(facts, names)


def _effects(node: Node, uid: str) -> Iterator[tuple[Key, str]]:
    try:
        effects = node.effects(uid)
    except UpstreamDefectError:
        return
    yield from (((uid, "", file), value) for file, value in effects.files.items())
    for container in effects.containers:
        yield (uid, container.name, _OOM), str(container.oom_score_adj)
        for file, text in container.files.items():
            if file not in _PINNED:
                yield (uid, container.name, file), text


def describe(before: Held, after: Held, *, run: bool = True) -> Iterator[Difference]:
    """Yield the differences of two nodes, pod by pod in the order in which they were given. Of a pod that one of them
    refuses that is all. `run`: the pods run meanwhile; else they are made anew, and nothing is taken from them."""
    for uid, name in after.names.items():
        was, now = before.refused(uid), after.refused(uid)
        if was or now:
            if was != now:
                yield Difference((uid, "", _VERDICT), name, *_verdict(was, now))
            continue
        keys = dict.fromkeys(key for held in (before, after) for key in held.facts if key[0] == uid)
        for key in keys:
            old, new = before.facts.get(key, ""), after.facts.get(key, "")
            if old != new:
                text, harms = _describe(key, old, new, run=run)
                yield Difference(key, name, text, harms and run)


def _verdict(was: str, now: str) -> tuple[str, bool]:
    if was and now:
        return f"is refused in other words: {now}", False
    return (f"is refused: {now}", True) if now else ("is admitted", False)


def _describe(key: Key, old: str, new: str, *, run: bool) -> tuple[str, bool]:
    _, container, kind = key
    who = f"container {container}" if container else "the pod's cgroup"
    if kind == _CPUS:
        if not (run and old):
            own = f"gets CPUs {new} of its own" if new else "gets no CPUs of its own"
            return f"{who} {own}{f', not {old}' if old else ''}", False
        if not new:
            return f"{who} loses its CPUs {old} and runs in the shared pool", True
        return f"{who} moves from CPUs {old} to {new}", True
    if kind == _MEMORY:
        if not new:
            return f"{who}: memory is no longer bound to NUMA {old}", True
        return (f"{who}: memory is bound to NUMA {new}, was {old or 'not bound'}", bool(old))
    if kind == _DEVICES:
        return f"{who} has devices {new or 'none'}, had {old or 'none'}", bool(old)
    if kind == "cpu.max":
        throttled = old.startswith("max") and not new.startswith("max")
        return f"{who}: cpu.max is {new}, was {old} ({_quota(old, new)})", throttled
    return f"{who}: {kind} is {new or 'not set'}, was {old or 'not set'}", False


def _quota(old: str, new: str) -> str:
    if new.startswith("max"):
        return "another period, and no CFS quota as before" if old.startswith("max") else "no CFS quota any more"
    return "it gets a CFS quota" if old.startswith("max") else "another CFS quota"
