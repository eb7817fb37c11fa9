"""What a CPU Manager's state becomes in a resize (docs/resize.md): first everything gives back, then everything takes.

KEP-5526 and KEP-5554 leave pods with a bubble out; the order is ours. Slices give back to the pod's shared pool, the
bubble gives back to the node or takes from it, slices take from the pool, and all others share what is left.
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


def shrunk(state: CPUState, resizer: ResizePicker, pod: AdmissionPod, was: AdmissionPod) -> CPUState:
    """Without what containers, or the pod as a whole, have beyond what they ask for now; what was promised goes last.
    Raises `AdmissionError`."""
    if pod.uid in state.bubbles:
        return _shrunk_bubble(state, resizer, pod, was)
    for container in pod.containers:
        held, count = state.assignment(pod.uid, container.name), container.exclusive_cpus
        if held is None or held.bit_count() <= count:
            continue
        kept = pod_resize.shrunk(resizer, held, state.promised(pod.uid, container.name), count)
        state = state.resize(pod.uid, container.name, kept)
        if not kept:
            state = state.unassign(pod.uid, container.name)
    return state


def grown(
    state: CPUState,
    resizer: ResizePicker,
    pod: AdmissionPod,
    container: AdmissionContainer,
    *,
    free: Bits,
    affinity: Hint,
) -> CPUState:
    """With a container that has as many CPUs as it asks for now. Raises `AdmissionError`."""
    held = state.assignments[pod.uid][container.name]
    cpus = resizer.more(held, free, container.exclusive_cpus, affinity.mask)
    return state.resize(pod.uid, container.name, cpus)


def regrown_bubble(
    state: CPUState, resizer: ResizePicker, pod: AdmissionPod, *, free: Bits, affinity: Hint
) -> CPUState:
    """With a bubble of the size the pod asks for now, divided among its containers. Raises `AdmissionError`."""
    uid, held = pod.uid, state.bubbles[pod.uid]
    if pod.cpus > held.bit_count():
        state = state.resize_bubble(uid, resizer.more(held, free, pod.cpus, affinity.mask))
    own = state.assignments.get(uid, {})
    long_lived = [one.name for one in pod.containers if one.exclusive_cpus and not one.plain_init]
    slices = {name: own[name] for name in long_lived if name in own}
    for part in pod_resize.divided_again(resizer, pod, state.bubbles[uid], slices):
        change = state.resize_slice if part.container in long_lived else state.assign
        state = change(uid, part.container, part.cpus)
    return state


def _shrunk_bubble(state: CPUState, resizer: ResizePicker, pod: AdmissionPod, was: AdmissionPod) -> CPUState:
    before, uid = state, pod.uid
    for old, container in zip(was.containers, pod.containers, strict=True):
        if bool(old.exclusive_cpus) != bool(container.exclusive_cpus):
            state = state.unassign(uid, container.name)
    held = state.assignments.get(uid, {})
    promised = {name: state.promised(uid, name) for name in held}
    slices = pod_resize.shrunk_slices(resizer, pod, held, promised)
    for name, cpus in slices.items():
        if cpus != held[name]:
            state = state.resize_slice(uid, name, cpus)
    if pod.cpus < state.bubbles[uid].bit_count():
        state = state.resize_bubble(uid, _smaller_bubble(state, resizer, pod, union(slices.values())))
    sharing = [one.name for one in pod.containers if not one.exclusive_cpus]
    pool = state.bubbles[uid] & ~union(slices.values())
    others = [one.name for one in pod.containers if not one.init and not one.exclusive_cpus]
    if state is not before or any(held.get(name, pool) != pool for name in others):
        for name in sharing:
            state = state.unassign(uid, name)
    return state


def _smaller_bubble(state: CPUState, resizer: ResizePicker, pod: AdmissionPod, slices: Bits) -> Bits:
    """What the pod keeps: its slices, what was promised to it, and the nearest to them."""
    bubble, promised = state.bubbles[pod.uid], state.promised_bubble(pod.uid)
    anchor = slices
    if promised.bit_count() <= pod.cpus:
        anchor |= promised
    else:
        bubble = promised
    if anchor.bit_count() > pod.cpus:
        raise AdmissionError(_SLICES_IN_THE_WAY, held=anchor.bit_count(), budget=pod.cpus)
    return resizer.pick(anchor, bubble & ~anchor, pod.cpus)
