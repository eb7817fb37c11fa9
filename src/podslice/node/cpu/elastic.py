"""Resizes of exclusive CPUs as functions of a `CPUState` (docs/resize.md): first everything shrinks, then everything
grows.

KEP-5526 and KEP-5554 do not cover pods with pod CPUs; the order is ours. Slices shrink into the pod's shared pool, the
pod CPUs shrink into the node's pool or grow from it, slices grow from the pod's pool, and the other containers share
the rest.
"""

from __future__ import annotations

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.node.cpu import pod_resize
from podslice.node.cpu.resize import ResizePicker
from podslice.node.cpu.state import CPUState
from podslice.node.topology.hint import Hint
from podslice.values.cpuset import Bits, union
from podslice.values.errors import AdmissionError, RefusalKind
from podslice.values.reasons import UNEXPECTED_ADMISSION

_SLICES_IN_THE_WAY = RefusalKind(
    "slices-in-the-way",
    "the pod's containers own {held} CPUs that were promised or cannot move, more than its {budget}",
    UNEXPECTED_ADMISSION,
)


def shrink(state: CPUState, resizer: ResizePicker, pod: AdmissionPod, was: AdmissionPod) -> CPUState:
    """Return the state without the CPUs that containers, or the pod as a whole, own beyond what they request now; CPUs
    promised at admission are freed last. Raises `AdmissionError`."""
    if pod.uid in state.pod_cpus:
        return _shrink_pod(state, resizer, pod, was)
    for container in pod.containers:
        held, count = state.assignment(pod.uid, container.name), container.exclusive_cpus
        if held is None or held.bit_count() <= count:
            continue
        kept = pod_resize.shrink(resizer, held, state.promised(pod.uid, container.name), count)
        state = state.resize(pod.uid, container.name, kept)
        if not kept:
            state = state.unassign(pod.uid, container.name)
    return state


def grow(
    state: CPUState,
    resizer: ResizePicker,
    pod: AdmissionPod,
    container: AdmissionContainer,
    *,
    free: Bits,
    affinity: Hint,
) -> CPUState:
    """Return the state in which a container owns as many CPUs as it requests now. Raises `AdmissionError`."""
    held = state.assignments[pod.uid][container.name]
    cpus = resizer.more(held, free, container.exclusive_cpus, affinity.mask)
    return state.resize(pod.uid, container.name, cpus)


def resize_pod(state: CPUState, resizer: ResizePicker, pod: AdmissionPod, *, free: Bits, affinity: Hint) -> CPUState:
    """Return the state with as many pod CPUs as the pod requests now, divided among its containers. Raises
    `AdmissionError`."""
    uid, held = pod.uid, state.pod_cpus[pod.uid]
    if pod.cpus > held.bit_count():
        state = state.resize_pod_cpus(uid, resizer.more(held, free, pod.cpus, affinity.mask))
    own = state.assignments.get(uid, {})
    long_lived = [one.name for one in pod.containers if one.exclusive_cpus and not one.plain_init]
    slices = {name: own[name] for name in long_lived if name in own}
    for part in pod_resize.divide(resizer, pod, state.pod_cpus[uid], slices):
        # Only long-lived containers have a promise to keep: a loan of an init container would outlive it.
        change = state.resize_slice if part.container in long_lived else state.assign
        state = change(uid, part.container, part.cpus)
    return state


def _shrink_pod(state: CPUState, resizer: ResizePicker, pod: AdmissionPod, was: AdmissionPod) -> CPUState:
    """Shrink the slices of a pod, then its pod CPUs, and free assignments that the new division replaces."""
    before, uid = state, pod.uid
    for old, container in zip(was.containers, pod.containers, strict=True):
        # A container that changes between exclusive and shared starts anew: nothing was promised to it in the other
        # role.
        if bool(old.exclusive_cpus) != bool(container.exclusive_cpus):
            state = state.unassign(uid, container.name)
    held = state.assignments.get(uid, {})
    promised = {name: state.promised(uid, name) for name in held}
    slices = pod_resize.shrink_slices(resizer, pod, held, promised)
    for name, cpus in slices.items():
        if cpus != held[name]:
            state = state.resize_slice(uid, name, cpus)
    if pod.cpus < state.pod_cpus[uid].bit_count():
        state = state.resize_pod_cpus(uid, _shrink_pod_cpus(state, resizer, pod, union(slices.values())))
    sharing = [one.name for one in pod.containers if not one.exclusive_cpus]
    pool = state.pod_cpus[uid] & ~union(slices.values())
    others = [one.name for one in pod.containers if not one.init and not one.exclusive_cpus]
    # Containers without an assignment get the pod's new shared pool when the slices are settled.
    if state is not before or any(held.get(name, pool) != pool for name in others):
        for name in sharing:
            state = state.unassign(uid, name)
    return state


def _shrink_pod_cpus(state: CPUState, resizer: ResizePicker, pod: AdmissionPod, slices: Bits) -> Bits:
    """Return the CPUs the pod keeps: its slices, its promised CPUs, and those nearest to them."""
    pod_cpus, promised = state.pod_cpus[pod.uid], state.promised_to_pod(pod.uid)
    anchor = slices
    if promised.bit_count() <= pod.cpus:
        anchor |= promised
    else:
        pod_cpus = promised
    if anchor.bit_count() > pod.cpus:
        raise AdmissionError(_SLICES_IN_THE_WAY, held=anchor.bit_count(), budget=pod.cpus)
    return resizer.pick(anchor, pod_cpus & ~anchor, pod.cpus)
