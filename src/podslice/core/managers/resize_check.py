"""Whether waiting can help a resize of what containers own: `core.resize.exclusive`, asked about what is held."""

from __future__ import annotations

from podslice.core.config.annotations import resize_wishes
from podslice.core.errors import AdmissionError
from podslice.core.managers.container import ContainerManager
from podslice.core.pod.eligibility import AdmissionPod
from podslice.core.resize.allocation import INFEASIBLE, ResizeVerdict
from podslice.core.resize.exclusive import ResizeRules, check_exclusive


def check(manager: ContainerManager, allocated: AdmissionPod, desired: AdmissionPod) -> ResizeVerdict | None:
    """Why the new sizes can never be granted; None where it is for what is free to decide."""
    cpu, uid = manager.cpu, desired.uid
    verdict = None
    if cpu.rules.resizer is not None:
        verdict = check_exclusive(
            allocated,
            desired,
            {one.name: cpu.state.promised(uid, one.name) for one in allocated.containers},
            ResizeRules(manager.policy.resize, resize_wishes(manager.policy, allocated.spec)),
            whole=desired.managed and manager.config.aligns_pods,
            bubble=cpu.state.promised_bubble(uid) if uid in cpu.state.bubbles else None,
            core_size=cpu.rules.core_size if cpu.options.full_pcpus_only else 1,
        )
    if verdict is None:
        try:
            manager.memory.check_whole(desired)
        except AdmissionError as error:
            return ResizeVerdict(INFEASIBLE, error.message, "empty_pod_pool")
    return verdict


def hopeless(manager: ContainerManager, desired: AdmissionPod, message: str) -> ResizeVerdict:
    """The verdict about sizes that would not fit if no other pod were there either."""
    detail = "topology"
    if desired.cpus > manager.cpu.allocatable.bit_count() and manager.cpu.static:
        detail = "cpus"
    elif manager.memory.is_too_small_for(desired):
        detail = "memory"
    return ResizeVerdict(INFEASIBLE, message, detail)
