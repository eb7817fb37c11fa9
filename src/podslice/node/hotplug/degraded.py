"""Resize owners some of whose CPUs are offline (docs/hotplug.md): they go on from those that are online.

Lost CPUs are given up, so that a container that grows gets as many CPUs as it requests. As many stay promised as were:
new CPUs take the place of lost promised ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from podslice.api.pod.eligibility import AdmissionPod
from podslice.node.cpu.state import CPUState
from podslice.values.cpuset import Bits, bits_of, iter_bits
from podslice.values.tables import drop, drop_in, put, put_in


class WithoutLost(NamedTuple):
    """The state without lost CPUs of containers that are resized, and how many CPUs were promised to each of them, and
    to their pod as a whole if it had some."""

    state: CPUState
    promised: Mapping[str, int]
    whole: int


def give_up_lost(state: CPUState, was: AdmissionPod, pod: AdmissionPod) -> WithoutLost | None:
    """Return the state before a resize of the pod, without its lost CPUs; None where the resize does not concern
    them."""
    uid, offline = pod.uid, state.offline
    if not state.of_pod(uid).cpus & offline:
        return None
    sizes = [(one, old.exclusive_cpus) for old, one in zip(was.containers, pod.containers, strict=True)]
    resized = [one for one, had in sizes if one.exclusive_cpus != had]
    pod_cpus = state.pod_cpus.get(uid)
    if pod_cpus is not None and (resized or was.cpus != pod.cpus):
        resized = list(pod.containers)
    own = [one for one in resized if state.assignment(uid, one.name) is not None]
    long_lived = [one.name for one in own if one.exclusive_cpus and not one.plain_init]
    promised = {name: state.promised(uid, name).bit_count() for name in long_lived}
    whole = state.promised_to_pod(uid).bit_count()
    left = state
    for one in own:
        left = _drop_offline(left, uid, one.name, offline)
    if pod_cpus is not None and resized:
        left = left.resize_pod_cpus(uid, pod_cpus & ~offline) if pod_cpus & ~offline else left.free_pod_cpus(uid)
        # Freeing pod CPUs drops the record of their classes, which growth must follow.
        left = replace(left, classes=state.classes)
    return None if left is state else WithoutLost(left, promised, whole)


def restore_promises(state: CPUState, uid: str, left: WithoutLost) -> CPUState:
    """Return the state after the resize with as many CPUs promised as before, the oldest first."""
    loans, pod_loans = state.loans, state.pod_loans
    for name, count in left.promised.items():
        held = state.assignment(uid, name)
        if held is not None:
            loaned = _beyond_promised(held, loans.get(uid, {}).get(name, ()), count)
            loans = put_in(loans, uid, name, loaned) if loaned else drop_in(loans, uid, name)
    if uid in state.pod_cpus:
        ordered = _beyond_promised(state.pod_cpus[uid], tuple(iter_bits(pod_loans.get(uid, 0))), left.whole)
        pod_loans = put(pod_loans, uid, bits_of(ordered)) if ordered else drop(pod_loans, uid)
    return replace(state, loans=loans, pod_loans=pod_loans)


def _beyond_promised(held: Bits, loaned: tuple[int, ...], promised: int) -> tuple[int, ...]:
    """Return the CPUs of a set beyond so many promised ones, in the order in which they came."""
    return (*iter_bits(held & ~bits_of(loaned)), *loaned)[promised:]


def _drop_offline(state: CPUState, uid: str, name: str, offline: Bits) -> CPUState:
    """Return the state in which a container has its online CPUs only; without any its assignment goes."""
    held = state.assignments[uid][name]
    if not held & offline:
        return state
    if not held & ~offline:
        return replace(state.unassign(uid, name), classes=state.classes)
    return state.resize_slice(uid, name, held & ~offline)
