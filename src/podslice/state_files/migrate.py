"""Adapt state files to a machine that changed over a reboot (docs/hotplug.md).

Nothing that ran before a reboot runs after it, so no CPUs have to stay. Either all owners keep their places in the
hardware, under the kernel's new numbers, or the node starts without files. This module removes no file; its callers
keep the old ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from podslice.machine.drift import LEGACY, DriftTolerance, is_drift
from podslice.machine.identity import MachineRecord, cpu_map, renumber
from podslice.node.checkpoints import data as checkpoint_data
from podslice.node.checkpoints import policy_state
from podslice.node.checkpoints.content import Content, read_content
from podslice.node.checkpoints.names import CPU_STATE_FILE, MEMORY_STATE_FILE, NODE_STATE_FILES, POLICY_STATE_FILE
from podslice.node.checkpoints.policy_state import MachineTexts
from podslice.node.cpu import checkpoint as checkpoint_cpu
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.memory.checkpoint import MemoryCheckpoint
from podslice.state_files.promises import Promises, kubelet_promises, replace_kubelet_promises
from podslice.values.cpuset import Bits, CPUSetError, bits_of, format_bits, iter_bits, parse_bits, union
from podslice.values.errors import PodsliceError
from podslice.values.go.gojson import CheckpointError

Outcome: TypeAlias = Literal["unchanged", "renumbered", "rebuilt"]


class Migration(NamedTuple):
    """The result of a migration. `unchanged`: the files fit as they are. `renumbered`: `files` replace those of the
    same name. `rebuilt`: they do not fit, for the `reason` given; the node starts without any. `changes` lists the new
    CPUs of each owner, `lost` the CPUs and memory that owners lose."""

    outcome: Outcome
    files: Mapping[str, bytes]
    reason: str = ""
    changes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


class _DoesNotFitError(PodsliceError):
    """Raised when files no longer describe the machine; the message is the reason."""


def migrate(
    files: Mapping[str, bytes],
    before: MachineRecord,
    after: MachineRecord,
    *,
    tolerance: DriftTolerance = LEGACY,
) -> Migration:
    """Adapt a node's files, by name, from the machine `before` to the machine `after`."""
    try:
        cpu = _content(files, CPU_STATE_FILE)
        memory = _content(files, MEMORY_STATE_FILE)
        _check_memory(memory, before, after, tolerance)
        mapping = cpu_map(before.cpus, after.cpus)
        # The same numbers in the same places on the same NUMA nodes: nothing to do.
        same = all(cpu == number for cpu, number in mapping.items()) and before.cpus.keys() == after.cpus.keys()
        if same and _partition(before) == _partition(after):
            return Migration("unchanged", {})
        # Without the static policy the file holds no CPU of any container, nor does one that no kubelet has filled in.
        if cpu is None or not isinstance(cpu.checkpoint, CPUCheckpoint) or cpu.checkpoint.policy_name != "static":
            return Migration("unchanged", {})
        if not (cpu.checkpoint.default_cpuset or cpu.checkpoint.entries or cpu.checkpoint.pod_entries):
            return Migration("unchanged", {})
        return _renumber_files(files, _Renumbering(cpu.checkpoint, before, after, mapping), cpu)
    except _DoesNotFitError as error:
        lost = tuple(_owners(files))
        return Migration("rebuilt", {}, str(error), lost=lost)


def _content(files: Mapping[str, bytes], name: str) -> Content | None:
    """Decode a file; None where there is none. Raises `_DoesNotFitError` for a damaged one."""
    data = files.get(name)
    if data is None:
        return None
    try:
        content = read_content(data)
    except CheckpointError as error:
        raise _DoesNotFitError(f"{name} cannot be read: {error}") from None
    if not content.intact:
        raise _DoesNotFitError(f"the checksum of {name} does not fit")
    return content


def _partition(machine: MachineRecord) -> dict[int, Bits]:
    return {id: node.cpus for id, node in machine.nodes.items()}


def _check_memory(
    memory: Content | None, before: MachineRecord, after: MachineRecord, tolerance: DriftTolerance
) -> None:
    """Raise `_DoesNotFitError` where NUMA nodes changed, or their memory by more than `tolerance`."""
    checkpoint = None if memory is None else memory.checkpoint
    if not isinstance(checkpoint, MemoryCheckpoint) or checkpoint.policy_name != "Static":
        return
    had, has = ({id: node.memory for id, node in machine.nodes.items()} for machine in (before, after))
    if had.keys() != has.keys():
        raise _DoesNotFitError(f"NUMA nodes {sorted(had)} are {sorted(has)} now")
    if not is_drift(had, has, tolerance):
        moved = ", ".join(f"node {id}: {has[id] - had[id]:+d} bytes" for id in sorted(had) if had[id] != has[id])
        raise _DoesNotFitError(f"memory differs by more than a reboot explains ({moved})")


class _Renumbering:
    """The renumbering of a CPU state file; collects its changes as text."""

    def __init__(
        self, checkpoint: CPUCheckpoint, before: MachineRecord, after: MachineRecord, mapping: Mapping[int, int]
    ) -> None:
        self.checkpoint = checkpoint
        self._before = before
        self.after = after
        self.mapping = mapping
        self.changes: list[str] = []
        self._cores = after.cores
        self._old_cores = before.cores

    def renumber_all(self) -> CPUCheckpoint:
        """Return the checkpoint under new CPU numbers. Raises `_DoesNotFitError`."""
        old = self.checkpoint
        entries = {
            pod: {name: self._renumber(f"entries.{pod}.{name}", _bits(text)) for name, text in (named or {}).items()}
            for pod, named in (old.entries or {}).items()
        }
        pods = {pod: self._renumber(f"podEntries.{pod}", cpus) for pod, cpus in (old.pod_entries or {}).items()}
        owned = union(cpus for named in entries.values() for cpus in named.values()) | union(pods.values())
        default = self._renumber_default(owned)
        texts: checkpoint_cpu.Entries = {
            pod: {name: format_bits(cpus) for name, cpus in named.items()} for pod, named in entries.items()
        }
        return CPUCheckpoint(old.policy_name, format_bits(default), texts, pods)

    def _renumber_default(self, owned: Bits) -> Bits:
        """Return the shared pool on the new machine: all CPUs without an owner, except reserved ones that the old pool
        lacked too (strict-cpu-reservation)."""
        old = _bits(self.checkpoint.default_cpuset)
        held = [_bits(text) for named in (self.checkpoint.entries or {}).values() for text in (named or {}).values()]
        # CPUs of the old machine in no set at all: only a strict reservation leaves such.
        hidden = self._before.all_cpus & ~(old | union(held) | union((self.checkpoint.pod_entries or {}).values()))
        kept = bits_of(self.mapping[cpu] for cpu in iter_bits(hidden) if cpu in self.mapping)
        default = self.after.all_cpus & ~owned & ~kept
        if not default:
            raise _DoesNotFitError("no CPU is left for the shared pool")
        if default != old:
            self.changes.append(f"defaultCpuSet: {format_bits(old)} becomes {format_bits(default)}")
        return default

    def _renumber(self, path: str, cpus: Bits) -> Bits:
        """Return an owner's CPUs under new numbers. Raises `_DoesNotFitError` where they do not keep their places."""
        now = renumber(cpus, self.mapping)
        if now is None:
            gone = bits_of(cpu for cpu in iter_bits(cpus) if cpu not in self.mapping)
            raise _DoesNotFitError(f"{path}: CPUs {format_bits(gone)} of {format_bits(cpus)} are not there any more")
        self._check_places(path, cpus)
        # A container that had whole cores may rely on it (full-pcpus-only); one that had half a core may get any place.
        if _is_whole(cpus, self._old_cores) and not _is_whole(now, self._cores):
            raise _DoesNotFitError(f"{path}: {format_bits(cpus)} were whole cores, {format_bits(now)} are not")
        if now != cpus:
            self.changes.append(f"{path}: {format_bits(cpus)} becomes {format_bits(now)}")
        return now

    def _check_places(self, path: str, cpus: Bits) -> None:
        for cpu in iter_bits(cpus):
            old, new = self._before.node_of(cpu), self.after.node_of(self.mapping[cpu])
            if old != new:
                raise _DoesNotFitError(f"{path}: CPU {cpu} was on NUMA node {old} and is on NUMA node {new} now")


def _is_whole(cpus: Bits, cores: list[Bits]) -> bool:
    """Whether the CPUs hold all threads of each core or none."""
    return all(core & cpus in (0, core) for core in cores)


def _renumber_files(files: Mapping[str, bytes], ledger: _Renumbering, cpu: Content) -> Migration:
    checkpoint = ledger.renumber_all()
    changed = {CPU_STATE_FILE: _encode(checkpoint, cpu, ledger.mapping)}
    policy = files.get(POLICY_STATE_FILE)
    if policy is not None:
        changed[POLICY_STATE_FILE] = _renumber_promises(policy, ledger.mapping, ledger.after)
    changed = {name: data for name, data in changed.items() if data != files.get(name)}
    return Migration("renumbered" if changed else "unchanged", changed, changes=tuple(ledger.changes))


def _encode(checkpoint: CPUCheckpoint, cpu: Content, mapping: Mapping[int, int]) -> bytes:
    """Encode the file in the version it had; promises among the further members of V4 get the new numbers."""
    if cpu.version == "v4":
        known, _ = kubelet_promises(cpu.unknown)
        promised = _renumber_texts(known, mapping)
        return checkpoint_data.CPU_V4.encode(checkpoint, replace_kubelet_promises(cpu.unknown, promised))
    return checkpoint_cpu.encode(checkpoint, "v3" if cpu.version == "v3" else "v2")


def _renumber_promises(data: bytes, mapping: Mapping[int, int], machine: MachineRecord) -> bytes:
    """Return the policy's file under new CPU numbers, with the record of the new machine where it had one of the old.
    Resizes that were being written are dropped: their pods no longer run. Members that this release does not know stay,
    and so does a file that cannot be read."""
    try:
        content = policy_state.decode(data)
    except CheckpointError:
        return data
    plain: dict[str, Any] = {"version": content.version, "bootId": content.boot_id, **policy_state.read_unknown(data)}
    if content.machine is not None:
        plain["machine"] = MachineTexts.of(machine)
    originals = _renumber_texts(content.originals, mapping)
    pods = {uid: _renumber_text(text, mapping) for uid, text in content.pod_originals.items()}
    order = {
        uid: {name: [mapping[cpu] for cpu in cpus if cpu in mapping] for name, cpus in named.items()}
        for uid, named in content.order.items()
    }
    members = {"originals": originals, "podOriginals": pods, "order": order}
    members |= {"classes": content.classes, "mixed": content.mixed, "plugins": content.plugins}
    for name, member in members.items():
        if member:
            plain[name] = member
    return policy_state.envelop(msgspec.to_builtins(plain))


def _renumber_texts(texts: Mapping[str, Mapping[str, str]], mapping: Mapping[int, int]) -> Promises:
    return {uid: {name: _renumber_text(text, mapping) for name, text in named.items()} for uid, named in texts.items()}


def _renumber_text(text: str, mapping: Mapping[int, int]) -> str:
    return format_bits(bits_of(mapping[cpu] for cpu in iter_bits(_bits(text)) if cpu in mapping))


def _bits(text: str) -> Bits:
    try:
        return parse_bits(text)
    except CPUSetError as error:
        raise _DoesNotFitError(f"{text!r} is not a CPU list: {error}") from None


def _owners(files: Mapping[str, bytes]) -> Iterator[str]:
    """Yield a text for each container that has exclusive CPUs or memory, as far as the files can be read."""
    for name in NODE_STATE_FILES:
        try:
            checkpoint = read_content(files[name]).checkpoint
        except (KeyError, CheckpointError):
            continue
        if isinstance(checkpoint, CPUCheckpoint):
            for pod, named in (checkpoint.entries or {}).items():
                yield from (f"entries.{pod}.{container}: CPUs {text}" for container, text in (named or {}).items())
        elif isinstance(checkpoint, MemoryCheckpoint):
            for pod, held in (checkpoint.entries or {}).items():
                for container, blocks in (held or {}).items():
                    amounts = ", ".join(
                        f"{block.size} bytes of {block.type} on NUMA nodes {list(block.numa_affinity or ())}"
                        for block in blocks or ()
                    )
                    yield f"entries.{pod}.{container}: {amounts}"
