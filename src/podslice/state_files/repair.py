"""Make a consistent CPU state from a damaged file and, where given, from the pods that still run.

CPUs of running containers take precedence over the file. From the file only entries are taken that contradict neither
the machine, nor each other, nor the running pods; all others are dropped and reported. CPUs without an owner then go to
the shared pool. The result passes the checks of a kubelet's start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from podslice.node.checkpoints import data as checkpoint_data
from podslice.node.checkpoints.releases import Release
from podslice.node.cpu import checkpoint as checkpoint_cpu
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.memory.checkpoint import Block
from podslice.state_files.consequence import NodeFacts
from podslice.state_files.convert import Rewritten
from podslice.state_files.promises import FIRST_WITH_PROMISES, find_held_promises, replace_kubelet_promises
from podslice.state_files.salvage import dumps, object_map, read_damaged, text_map
from podslice.values.cpuset import Bits, CPUSetError, format_bits, parse_bits, parse_bits_or_empty
from podslice.values.errors import InputError


class RunningContainer(msgspec.Struct, frozen=True):
    """A running container: its exclusive CPUs (None: not known, 0: none), and its memory (None: not known)."""

    cpus: Bits | None = None
    memory: tuple[Block, ...] | None = None


RunningPods = Mapping[str, Mapping[str, RunningContainer]]
"""Running containers by pod UID and name. Pods that are not in it no longer run."""


# cpu_manager_state

_MEMBERS = frozenset({"policyname", "defaultcpuset", "entries"})


def repair_cpu(data: bytes, target: Release, facts: NodeFacts, running: RunningPods | None) -> Rewritten:
    """Repair the CPU state file for `target`. Without a machine in `facts`, ALL is the CPUs that the file mentions.

    Raises `InputError` for releases that write V1, and for JSON that is another file.
    """
    # Kubelets before 1.18 write V1, whose entries name container ids instead of pods and containers.
    if target.minor < 18:
        raise InputError("files of kubelets before 1.18 are not written", remedy="name a newer release")
    members, actions = read_damaged(data, _MEMBERS)
    ledger = _CPULedger(members, facts, actions)
    # In order of trust: what runs, then whole pods, then containers, which must be inside of their pods.
    ledger.take_running(running)
    pods = object_map(members.get("podentries"))
    if target.pod_level:
        ledger.take_pods(pods, running)
    else:
        reason = f"a kubelet {target} knows no CPUs of whole pods; its containers keep theirs"
        actions += [f"podEntries.{pod}: {reason}" for pod in sorted(pods)]
    ledger.take_entries(object_map(members.get("entries")), running)
    checkpoint = ledger.checkpoint(choose_policy(members, ("none", "static"), "static", actions))
    version = target.writes("cpu")
    promised = find_held_promises(members, checkpoint)
    if promised and target.minor < FIRST_WITH_PROMISES:
        actions.append(f"originals: a kubelet {target} keeps no promises; podslice state convert does, elsewhere")
        promised = {}
    if version == "v4":
        further = replace_kubelet_promises("", promised)
        return Rewritten(checkpoint_data.CPU_V4.encode(checkpoint, further), version, actions)
    return Rewritten(checkpoint_cpu.encode(checkpoint, version), version, actions)


def choose_policy(members: dict[str, Any], known: tuple[str, str], fallback: str, actions: list[str]) -> str:
    """Return the policy in the file if it is one of `known`, else `fallback`, noted in `actions`."""
    policy = members.get("policyname")
    if policy in known:
        return str(policy)
    problem = "is missing" if policy is None else f"{dumps(policy)} is not a policy"
    actions.append(f"policyName {problem}; {fallback!r} is written")
    return fallback


class _CPULedger:
    """Assigns each CPU to one owner: first running containers, then pods, then the other containers of the file."""

    def __init__(self, members: dict[str, Any], facts: NodeFacts, actions: list[str]) -> None:
        self.actions = actions
        self.old_default = self._read(members.get("defaultcpuset"), "defaultCpuSet") or 0
        self.everything = facts.machine.cpus.bits if facts.machine is not None else self._find_mentioned(members)
        self.offline = 0 if facts.machine is None else facts.machine.offline.bits & ~self.everything
        self.kept = facts.reserved
        self.strict = facts.strict
        self.entries: dict[str, dict[str, Bits]] = {}
        self.pod_cpus: dict[str, Bits] = {}

    def _read(self, text: Any, path: str) -> Bits | None:
        """Parse a CPU list of the file; None, with a remark, for what is none."""
        try:
            return parse_bits(text) if isinstance(text, str) else None
        except CPUSetError:
            self.actions.append(f"{path}: {dumps(text)} is not a CPU list; dropped")
            return None

    def _find_mentioned(self, members: dict[str, Any]) -> Bits:
        """Return all CPUs that the file names, to stand for ALL where no machine is known."""
        union = self.old_default
        for named in object_map(members.get("entries")).values():
            for text in text_map(named).values():
                union |= parse_bits_or_empty(text or "")
        for entry in object_map(members.get("podentries")).values():
            union |= parse_bits_or_empty(_cpu_set(entry) or "")
        return union

    def _drop_offline(self, cpus: Bits, path: str) -> Bits:
        """Return the CPUs without offline ones; all of them where all are offline."""
        offline = cpus & self.offline
        if not offline or offline == cpus:
            return cpus
        self.actions.append(f"{path}: CPUs {format_bits(offline)} are offline; written without them")
        return cpus & ~offline

    def _cpus_of_others(self, besides: str) -> Bits:
        """Return the CPUs of all pods but `besides`."""
        union = 0
        for pod, whole in self.pod_cpus.items():
            union |= whole if pod != besides else 0
        for pod, named in self.entries.items():
            for cpus in named.values():
                union |= cpus if pod != besides else 0
        return union

    def _refusal(self, pod: str, cpus: Bits) -> str:
        """Return why a pod cannot own these CPUs; empty where it can."""
        if cpus == 0:
            return "holds no CPUs"
        if cpus & ~self.everything:
            return f"CPUs {format_bits(cpus & ~self.everything)} are not on the machine"
        if cpus & self.kept:
            return f"CPUs {format_bits(cpus & self.kept)} are reserved for the system"
        taken = cpus & self._cpus_of_others(pod)
        if taken:
            return f"CPUs {format_bits(taken)} belong to another pod"
        # A kubelet refuses an empty default set (cpu-topology 8.6).
        return "" if self._shared_pool() & ~cpus else "leaves no CPU for the shared pool"

    def _shared_pool(self) -> Bits:
        """Return the CPUs without an owner, and without the reserved ones under a strict reservation."""
        shared = self.everything & ~self._cpus_of_others("")
        return shared & ~self.kept if self.strict else shared

    def take_running(self, running: RunningPods | None) -> None:
        """Assign the CPUs of running containers that are known."""
        for pod, named in sorted((running or {}).items()):
            for name, container in sorted(named.items()):
                if container.cpus:
                    self._take(pod, name, container.cpus, f"running container {name} of pod {pod}")

    def take_pods(self, entries: dict[str, dict[str, Any]], running: RunningPods | None) -> None:
        """Assign the CPUs of the file's pod entries, for pods that run."""
        for pod, entry in sorted(entries.items()):
            path = f"podEntries.{pod}"
            cpus = self._read(_cpu_set(entry) or "", path)
            if cpus is None or not self._is_running(pod, None, running, path):
                continue
            # Before the check against the machine, whose CPUs are the online ones.
            cpus = self._drop_offline(cpus, path)
            refusal = self._refusal(pod, cpus)
            if refusal:
                self.actions.append(f"{path}: {refusal}; dropped")
            else:
                self.pod_cpus[pod] = cpus

    def take_entries(self, entries: dict[str, dict[str, Any]], running: RunningPods | None) -> None:
        """Assign the CPUs of the file's entries, for containers that run and whose CPUs are not known otherwise."""
        for pod, named in sorted(entries.items()):
            for name, text in sorted(text_map(named).items()):
                path = f"entries.{pod}.{name}"
                cpus = self._read(text, path)
                if cpus is None or not self._is_running(pod, name, running, path):
                    continue
                known = (running or {}).get(pod, {}).get(name)
                if known is not None and known.cpus is not None:
                    if known.cpus != cpus:
                        has = format_bits(known.cpus) or "no exclusive CPUs"
                        self.actions.append(
                            f"{path}: the file says {text}, the container runs on {has}; so it is written"
                        )
                    continue
                self._take(pod, name, cpus, path)

    def _is_running(self, pod: str, name: str | None, running: RunningPods | None, path: str) -> bool:
        """Whether a pod or container runs, as far as is known; notes those that do not."""
        if running is None or (pod in running and (name is None or name in running[pod])):
            return True
        self.actions.append(f"{path}: does not run any more; dropped")
        return False

    def _take(self, pod: str, name: str, cpus: Bits, path: str) -> None:
        """Assign CPUs to a container, or note why it cannot own them."""
        cpus = self._drop_offline(cpus, path)
        refusal = self._refusal(pod, cpus)
        whole = self.pod_cpus.get(pod)
        if not refusal and whole is not None and cpus & ~whole:
            refusal = f"CPUs {format_bits(cpus & ~whole)} are not the pod's"
        if refusal:
            self.actions.append(f"{path}: {refusal}; dropped")
        else:
            self.entries.setdefault(pod, {})[name] = cpus

    def checkpoint(self, policy: str) -> CPUCheckpoint:
        """Return the checkpoint of what was assigned."""
        # Under `none` nothing is assigned, and the default set is not checked at a kubelet's start.
        if policy == "none":
            return CPUCheckpoint(policy, format_bits(self.old_default))
        default = self._shared_pool()
        if default != self.old_default:
            old, new = format_bits(self.old_default), format_bits(default)
            self.actions.append(f"defaultCpuSet: {old!r} becomes {new!r}: all CPUs without an owner")
        texts: checkpoint_cpu.Entries = {
            pod: {name: format_bits(cpus) for name, cpus in named.items()} for pod, named in self.entries.items()
        }
        return CPUCheckpoint(policy, format_bits(default), texts, dict(self.pod_cpus))


def _cpu_set(entry: dict[str, Any]) -> str | None:
    text = {key.lower(): member for key, member in entry.items()}.get("cpuset")
    return text if isinstance(text, str) else None
