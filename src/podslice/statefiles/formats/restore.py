"""Restoring and validating the CPU Manager's state at start (cpu-topology 8.5, 8.6)."""

from __future__ import annotations

from collections.abc import Mapping

from podslice.core.errors import StartError, StartKind
from podslice.core.machine.topology import CPUTopology
from podslice.core.state.model import CPUState
from podslice.core.values.cpuset import Bits, CPUSetError, format_bits, parse_bits
from podslice.core.values.golang import quote
from podslice.statefiles.formats import checkpoint_cpu, checkpoint_data
from podslice.statefiles.formats.checkpoint_cpu import CPUCheckpoint
from podslice.statefiles.go.gojson import CheckpointError

_STAGE = "startCPUManager"
REMEDY = "undo the change of machine, policy or reservation, or repair the file: podslice state repair"
_UNUSABLE = StartKind(
    "unusable-state",
    "start cpu manager error: could not restore state from checkpoint: {problem}, please drain this node and delete "
    "the CPU manager checkpoint file {path} before restarting {restarted}",
    REMEDY,
)
_INVALID = StartKind("invalid-state", "start cpu manager error: {problem}", REMEDY)


def restore_cpu_state(
    data: bytes | None,
    *,
    policy_name: str,
    pod_level: bool,
    containers: Mapping[str, tuple[str, str]],
    path: str,
    trust_zero: bool = True,
) -> CPUState:
    """The state a state file holds, or a fresh one without a file (cpu-topology 8.5).

    `containers` maps the runtime's container ids to (pod UID, name), for V1 files. Without `trust_zero` a checksum of
    0, which upstream lets pass in older formats, is refused, and V4 is read by its own. Raises `StartError`.
    """
    if data is None:
        return CPUState()
    try:
        if not trust_zero and checkpoint_data.is_data_file(data):
            return adopt(checkpoint_data.CPU_V4.load(data, pod_level=pod_level), policy_name)
        checkpoint = checkpoint_cpu.load(data, pod_level=pod_level, containers=containers, trust_zero=trust_zero)
        return adopt(checkpoint, policy_name)
    except CheckpointError as error:
        raise unusable(error, path) from None


def unusable(error: CheckpointError, path: str) -> StartError:
    """What a kubelet says when it cannot use the file at `path`."""
    return StartError(_STAGE, _UNUSABLE, problem=str(error), path=quote(path), restarted="Kubelet")


def adopt(checkpoint: CPUCheckpoint, policy_name: str) -> CPUState:
    """The state a checkpoint holds. Raises `CheckpointError` for another policy's and for bad CPU lists."""
    if checkpoint.policy_name != policy_name:
        raise CheckpointError(
            f"configured policy {quote(policy_name)} differs from state checkpoint policy "
            f"{quote(checkpoint.policy_name)}"
        )
    try:
        default = parse_bits(checkpoint.default_cpuset)
    except CPUSetError as error:
        raise CheckpointError(f"could not parse default cpu set {quote(checkpoint.default_cpuset)}: {error}") from None
    assignments = {
        pod: {name: _parse_assignment(pod, name, text) for name, text in named.items()}
        for pod, named in (checkpoint.entries or {}).items()
        if named
    }
    return CPUState(default, assignments, dict(checkpoint.pod_entries or {}))


def _parse_assignment(pod: str, container: str, text: str) -> Bits:
    try:
        return parse_bits(text)
    except CPUSetError as error:
        raise CheckpointError(
            f"could not parse cpuset {quote(text)} for container {quote(container)} in pod {quote(pod)}: {error}"
        ) from None


def validate_cpu_state(
    state: CPUState, topology: CPUTopology, *, reserved: Bits, strict: bool, pod_level: bool, offline: Bits = 0
) -> CPUState:
    """A restored state, checked against the machine; an empty default set is initialised (cpu-topology 8.6). It may
    name CPUs that are `offline`.

    Raises `StartError`.
    """
    everything = topology.all_cpus & ~reserved if strict else topology.all_cpus
    default = state.default
    if not default:
        if state.assignments:
            raise _invalid("default cpuset cannot be empty")
        return state.with_default(everything)
    if strict:
        if reserved & default:
            raise _invalid(
                f"some of strictly reserved cpus: {_q(reserved & default)} are present in defaultCpuSet: {_q(default)}"
            )
    elif reserved & ~default:
        raise _invalid(f"not all reserved cpus: {_q(reserved)} are present in defaultCpuSet: {_q(default)}")
    union = default
    for pod, containers in state.assignments.items():
        for name, cpus in containers.items():
            if cpus & default:
                raise _invalid(
                    f"pod: {pod}, container: {name} cpuset: {_q(cpus)} overlaps with default cpuset {_q(default)}"
                )
            union |= cpus
    if pod_level:
        for cpus in state.bubbles.values():
            union |= cpus
    if union & ~offline != everything:
        raise _invalid(f"current set of available CPUs {_q(everything)} doesn't match with CPUs in state {_q(union)}")
    return state


def _invalid(problem: str) -> StartError:
    return StartError(_STAGE, _INVALID, problem=problem)


def _q(cpus: Bits) -> str:
    return f'"{format_bits(cpus)}"'
