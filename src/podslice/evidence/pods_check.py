"""Running pods against the state files that should hold their CPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import Pod
from podslice.evidence.contradiction import Contradiction
from podslice.evidence.owners import Owner, read_owners
from podslice.node.checkpoints.content import Content
from podslice.node.checkpoints.names import CPU_STATE_FILE, POLICY_STATE_FILE
from podslice.node.cpu.checkpoint import CPUCheckpoint

_MOST_NAMED = 3
_AGE = "Were files and list taken from one node, at one time?"


def check_elsewhere(contents: Mapping[str, Content], elsewhere: Iterable[Pod]) -> Iterator[Contradiction]:
    """Yield the owners in the files that are pods of other nodes by the list of pods."""
    owners = {one.uid for one in read_owners(contents)}
    found = [pod for pod in elsewhere if pod.metadata.uid in owners]
    if found:
        names = ", ".join(f"{pod.metadata.full_name} on {pod.spec.node_name}" for pod in found[:_MOST_NAMED])
        text = f"{CPU_STATE_FILE} has owners that run on other nodes by the list of pods: {names}"
        uids = tuple(pod.metadata.uid for pod in found)
        yield Contradiction("owners-elsewhere", "state", text, "Are these the state files of this node?", uids)


def check_owners(contents: Mapping[str, Content], running: Iterable[AdmissionPod]) -> Iterator[Contradiction]:
    """Yield the running pods that are entitled to CPUs of their own and have others in the CPU Manager's file: none, or
    another number. Under a PodslicePolicy owners may have more than they ask for."""
    cpu = next((one.checkpoint for one in contents.values() if isinstance(one.checkpoint, CPUCheckpoint)), None)
    if cpu is None or cpu.policy_name != "static" or any(one.by_container_id for one in contents.values()):
        return
    owners: dict[str, dict[str, Owner]] = {}
    for owner in read_owners(contents):
        owners.setdefault(owner.uid, {})[owner.container] = owner
    missing: list[Pod] = []
    other: list[tuple[Pod, str]] = []
    for pod in running:
        wanted = {one.name: one.exclusive_cpus for one in pod.containers if one.exclusive_cpus and not one.plain_init}
        own = owners.get(pod.uid, {})
        if not wanted or pod.managed:
            continue
        if not own:
            missing.append(pod.spec)
        elif POLICY_STATE_FILE not in contents:
            wrong = [name for name, count in wanted.items() if name in own and own[name].cpus.bit_count() != count]
            other += [(pod.spec, f"{name} has {own[name].cpus.bit_count()}, not {wanted[name]}") for name in wrong[:1]]
    if missing:
        names = ", ".join(one.metadata.full_name for one in missing[:_MOST_NAMED])
        uids = tuple(pod.metadata.uid for pod in missing)
        text = f"{CPU_STATE_FILE} has no CPUs of pods that run and are entitled to their own: {names}"
        yield Contradiction("owners-missing", "state", text, _AGE, uids)
    if other:
        names = ", ".join(f"{pod.metadata.full_name} ({what})" for pod, what in other[:_MOST_NAMED])
        uids = tuple(pod.metadata.uid for pod, _ in other)
        text = f"Pods have other numbers of CPUs in {CPU_STATE_FILE} than they ask for: {names}"
        yield Contradiction("owners-resized", "state", text, _AGE, uids)
