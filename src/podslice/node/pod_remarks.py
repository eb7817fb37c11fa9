"""Remarks about an admitted pod that every command makes alike: reserved CPUs that it was given, and CPUs of its budget
that no container of it can use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podslice.api.pod.capped_budget import capped_budgets
from podslice.api.pod.eligibility import AdmissionPod
from podslice.values.cpuset import CPUSet


def describe_reserved(container: str, given: CPUSet) -> str:
    """Return the consequence of reserved CPUs that a defect of upstream gives to a container; without a full stop."""
    one = len(given) == 1
    cpus = f"CPU{'' if one else 's'} {given}, which {'is' if one else 'are'}"
    return (
        f"container {container} gets {cpus} reserved for the system: the kubelet does not start again with the state "
        "file that it writes now"
    )


def budget_remarks(pod: AdmissionPod, gates: Mapping[str, bool], *, whole: bool) -> Iterator[str]:
    """Yield what of a pod's budget no container can use, without full stops. `whole`: the managers divide it."""
    divided = describe_unused(pod) if whole else ""
    if divided:
        yield divided
    for one in capped_budgets(pod.spec, gates):
        if one.resource != "cpu" or not divided:
            yield one.sentence


def unused_budget(pod: AdmissionPod) -> int:
    """Return how many CPUs of a budget that is divided among the containers none of them can use: those that are left
    where no container shares."""
    running = [one for one in pod.containers if not one.plain_init]
    left = pod.cpus - sum(one.exclusive_cpus for one in running)
    return left if left > 0 and not any(one.shares for one in running) else 0


def describe_unused(pod: AdmissionPod) -> str:
    """Return the CPUs of a pod's budget that no container can use, empty for none; without a full stop. Only for pods
    whose budget is placed as a whole."""
    left = unused_budget(pod)
    if not left:
        return ""
    return (
        f"of the pod's budget of {pod.cpus} CPUs its containers own {pod.cpus - left} and none shares: "
        f"{left} CPU{'s' * (left > 1)} stay reserved that no container can use"
    )
