"""The state files of a kubelet or of the agent: what they assign on a node."""

from __future__ import annotations

from pathlib import Path

import msgspec

from podslice.audit.promises import RecordedPromises, load_promises
from podslice.audit.report import AuditFinding
from podslice.host.state.statefile import read_state
from podslice.node.checkpoints.content import Content, read_content
from podslice.node.checkpoints.names import CPU_STATE_FILE, MEMORY_STATE_FILE
from podslice.node.cpu import state as model
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.memory.checkpoint import MemoryCheckpoint
from podslice.values.cpuset import Bits, CPUSetError, parse_bits, union
from podslice.values.errors import InputError
from podslice.values.go.gojson import CheckpointError


class RecordedState(msgspec.Struct, frozen=True):
    """Assignments in the state files: CPUs and memory nodes by pod UID and container, the CPUs of pods with pod-level
    resources, and the shared pool in `default`."""

    default: Bits = 0
    assignments: dict[str, dict[str, Bits]] = {}
    pod_cpus: dict[str, Bits] = {}
    memory: dict[str, dict[str, Bits]] = {}
    problems: tuple[AuditFinding, ...] = ()
    promises: RecordedPromises = RecordedPromises()

    @property
    def sets(self) -> dict[str, dict[str, Bits]]:
        """CPUs by pod and container, those of a pod as a whole under the empty name."""
        named = {uid: dict(own) for uid, own in self.assignments.items()}
        for uid, cpus in self.pod_cpus.items():
            named.setdefault(uid, {})[""] = cpus
        return named

    @property
    def owned(self) -> Bits:
        """CPUs that a container or a pod owns."""
        assigned = (cpus for containers in self.assignments.values() for cpus in containers.values())
        return union(assigned) | union(self.pod_cpus.values())

    def of_pod(self, uid: str) -> Bits:
        """Return the CPUs that belong to one pod."""
        return self.pod_cpus.get(uid, 0) | union(self.assignments.get(uid, {}).values())


def load_state(directory: Path) -> RecordedState:
    """Load the state files of a directory. Raises `InputError` if there is no CPU Manager state."""
    content, problems = _content(directory / CPU_STATE_FILE)
    cpu = content.checkpoint if content is not None else None
    if not isinstance(cpu, CPUCheckpoint):
        if problems:
            return RecordedState(problems=tuple(problems))
        raise InputError(
            f"holds no {CPU_STATE_FILE}", source=str(directory), remedy="--state names the kubelet's or agent's folder"
        )
    assignments: dict[str, dict[str, Bits]] = {}
    for key, containers in (cpu.entries or {}).items():
        uid = key.partition("/")[0]
        for name, text in (containers or {}).items():
            assignments.setdefault(uid, {})[name] = _parse(text, f"{key}/{name}", problems)
    state = RecordedState(
        default=_parse(cpu.default_cpuset, "defaultCpuSet", problems),
        assignments=assignments,
        pod_cpus=dict(cpu.pod_entries or {}),
        memory=_memory(directory / MEMORY_STATE_FILE, problems),
    )
    promises, found = load_promises(directory, state.sets)
    return msgspec.structs.replace(state, promises=promises, problems=(*problems, *found))


def _content(path: Path) -> tuple[Content | None, list[AuditFinding]]:
    data = read_state(path)
    if data is None:
        return None, []
    try:
        content = read_content(data)
    except CheckpointError as error:
        return None, [AuditFinding("state", str(path), "", "", f"{path.name} cannot be read: {error}")]
    # Checksum 0 passes in older formats, whatever the content is.
    if content.intact or content.is_unchecked:
        return content, []
    return content, [AuditFinding("state", str(path), "", "", f"{path.name}: the checksum does not cover the content")]


def _memory(path: Path, problems: list[AuditFinding]) -> dict[str, dict[str, Bits]]:
    content, found = _content(path)
    problems += found
    memory = content.checkpoint if content is not None else None
    if not isinstance(memory, MemoryCheckpoint):
        return {}
    nodes: dict[str, dict[str, Bits]] = {}
    for key, containers in (memory.entries or {}).items():
        for name, blocks in (containers or {}).items():
            mask = model.numa_nodes(blocks or ())
            if mask:
                nodes.setdefault(key.partition("/")[0], {})[name] = mask
    return nodes


def _parse(text: str, where: str, problems: list[AuditFinding]) -> Bits:
    try:
        return parse_bits(text)
    except CPUSetError as error:
        problems.append(AuditFinding("state", where, "", text[:80], str(error)))
        return 0
