"""Holdings of pods without names, and digests that compare them."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter
from typing import NamedTuple

import msgspec

from podslice.machine.memory import Block
from podslice.node.devices.records import HeldDevices
from podslice.node.state import NodeState
from podslice.values.cpuset import Bits

Devices = tuple[tuple[str, tuple[str, ...]], ...]
"""Ids in byte order by resource."""


class ContainerHolding(msgspec.Struct, frozen=True):
    """One container's holding; `cpus` None for the node's shared pool."""

    cpus: Bits | None = None
    blocks: tuple[Block, ...] | None = None
    devices: Devices = ()


# Digests and messages between agents and services keep the older name "bubble".
class Holding(msgspec.Struct, frozen=True, rename={"pod_cpus": "bubble"}):
    """One pod's holding without any name, its containers in the order of their specification. `pod_cpus`
    and `blocks` belong to a pod with pod-level resources as a whole."""

    containers: tuple[ContainerHolding, ...]
    pod_cpus: Bits | None = None
    blocks: tuple[Block, ...] | None = None


class Digest(NamedTuple):
    """Hexadecimal digests of all holdings on a node. `allocation` covers no names: pods with the same holding count as
    the same. `named` covers UIDs and container names too. Both are the same on every machine and in every Python."""

    allocation: str
    named: str


def holding_of(state: NodeState, uid: str) -> Holding:
    """Return a pod's holding; the pod need not be on the node any more."""
    return _holding(state, uid, _containers(state, uid))


def _holding(state: NodeState, uid: str, names: tuple[str, ...]) -> Holding:
    """Return what the pod's containers of these `names` hold, and the pod as a whole."""
    cpus, blocks = state.cpu.assignments.get(uid, {}), state.memory.assignments.get(uid, {})
    records = state.device.records.get(uid, {})
    containers = tuple(
        ContainerHolding(cpus.get(name), blocks.get(name), _devices(state, records[name]) if name in records else ())
        for name in names
    )
    return Holding(containers, state.cpu.pod_cpus.get(uid), state.memory.pod_assignments.get(uid))


def _devices(state: NodeState, held: dict[str, HeldDevices]) -> Devices:
    pools = state.device.pools
    return tuple((resource, tuple(pools[resource].names(held[resource].devices))) for resource in sorted(held))


def _containers(state: NodeState, uid: str) -> tuple[str, ...]:
    """Return the containers of a pod in the order of its specification; of a pod that is gone, those that still hold
    something."""
    pod = state.pods.get(uid)
    named = () if pod is None else tuple(container.name for container in pod.containers)
    left = {*state.cpu.assignments.get(uid, ()), *state.memory.assignments.get(uid, ())}
    left |= {*state.device.records.get(uid, ())}
    return named + tuple(sorted(left.difference(named)))


# Digests


class Digester:
    """Digests the states of one node. Caches what pods hold, so that the next digest covers only changed pods."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[tuple[object, ...], tuple[int, int]]] = {}

    def of(self, state: NodeState) -> Digest:
        """Return the digests of a state."""
        pods: dict[str, tuple[tuple[object, ...], tuple[int, int]]] = {}
        plain = named = 0
        for uid in _holders(state):
            parts = _parts(state, uid)
            known = self._pods.get(uid)
            if known is None or any(old is not new for old, new in zip(known[0], parts, strict=True)):
                known = parts, _hashes(state, uid)
            pods[uid] = known
            # Sums do not depend on the order of pods, and a pod that goes only takes its own number away.
            plain, named = plain + known[1][0], named + known[1][1]
        self._pods = pods
        node = _encode(_node_facts(state))
        return Digest(_hex(node, plain), _hex(node, named))


def digest(state: NodeState) -> Digest:
    """Return the digests of a state; a `Digester` is faster for many states of one node."""
    return Digester().of(state)


def _holders(state: NodeState) -> dict[str, None]:
    """Return the pods that are on the node or hold something of it."""
    tables = state.cpu.assignments, state.cpu.pod_cpus, state.memory.assignments
    holders: dict[str, None] = dict.fromkeys(state.pods)
    for table in (*tables, state.memory.pod_assignments, state.device.records):
        holders.update(dict.fromkeys(table))
    return holders


def _parts(state: NodeState, uid: str) -> tuple[object, ...]:
    cpu, memory = state.cpu, state.memory
    own = state.pods.get(uid), cpu.assignments.get(uid), cpu.pod_cpus.get(uid)
    return *own, memory.assignments.get(uid), memory.pod_assignments.get(uid), state.device.records.get(uid)


def _hashes(state: NodeState, uid: str) -> tuple[int, int]:
    names = _containers(state, uid)
    plain = _encode_holding(_holding(state, uid, names))
    return _number(plain), _number(_encode((uid, *names)) + plain)


@lru_cache(maxsize=8192)
def _encode_holding(holding: Holding) -> bytes:
    """Encode a holding; cached, because nodes of one model give out the same sets again and again."""
    return _encode(msgspec.to_builtins(holding))


def _node_facts(state: NodeState) -> tuple[object, ...]:
    """Return what a digest covers beside the pods: DEFAULT, the memory ledgers and the devices in use."""
    tables = tuple(
        (node, ledger.number_of_assignments, tuple(ledger.cells or ()), msgspec.to_builtins(ledger.memory_map or {}))
        for node, ledger in sorted(state.memory.machine_state.items())
    )
    used = tuple(
        (resource, tuple(pool.names(state.device.used.get(resource, 0))))
        for resource, pool in sorted(state.device.pools.items(), key=itemgetter(0))
    )
    return state.cpu.default, tables, used


def _number(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=16).digest(), "big")


def _hex(node: bytes, pods: int) -> str:
    return blake2b(node + _encode(pods % (1 << 128)), digest_size=16).hexdigest()


def _encode(value: object) -> bytes:
    """Return bytes that differ for different values: each value with its kind and its length."""
    if value is None:
        return b"n"
    if isinstance(value, int):
        return b"i%x;" % value if value >= 0 else b"i-%x;" % -value
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        return b"s%d:%s" % (len(data), data)
    if isinstance(value, dict):
        return b"d%s." % b"".join(_encode(key) + _encode(value[key]) for key in sorted(value))
    if isinstance(value, (list, tuple)):
        return b"l%s." % b"".join(map(_encode, value))
    raise TypeError(f"no {type(value).__name__} is in a state")
