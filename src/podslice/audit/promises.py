"""The state file of a PodslicePolicy: promised CPUs, and resizes and moves being written (docs/resize.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from podslice.api.pod.mixed import MixedShare
from podslice.audit.report import AuditFinding, PromisedCPUs
from podslice.config.policy import IMPLICIT_CLASS, PodslicePolicy
from podslice.host.state.statefile import read_state
from podslice.node.checkpoints import policy_state
from podslice.node.checkpoints.names import POLICY_STATE_FILE
from podslice.node.cpu.state import Intent
from podslice.node.plugins.classes import OTHERS
from podslice.values.cpuset import Bits, bits_of, format_bits, parse_bits_or_empty
from podslice.values.go.gojson import CheckpointError

Sets = Mapping[str, Mapping[str, Bits]]
"""CPUs by pod UID and container, those of the pod as a whole under the empty name."""


class RecordedPromises(msgspec.Struct, frozen=True):
    """The promised CPUs of containers that have more, and of pods as a whole under the empty name, by pod UID; resizes
    and moves that were being written; containers with exclusive and shared CPUs; the CPU classes under which CPUs were
    assigned. `first_threads`: CPUs that are the lowest thread of their core, where the file names the machine."""

    promised: dict[str, dict[str, Bits]] = {}
    intents: dict[str, Intent] = {}
    mixed: dict[str, dict[str, MixedShare]] = {}
    classes: Mapping[str, Mapping[str, Sequence[str]]] = {}
    first_threads: Bits = 0

    def hides_smt(self, uid: str, name: str, cpus: Bits, runs_on: Bits) -> bool:
        """Whether a container with CPUs by class runs on the lowest thread of each of its cores, as its class asks."""
        return name in self.classes.get(uid, {}) and bool(runs_on) and runs_on == cpus & self.first_threads

    def sides(self, uid: str, name: str) -> Iterator[Bits]:
        """Yield the sets that a container may have while its pod is resized or moved."""
        for side in self.intents[uid].sides if uid in self.intents else ():
            yield side.assignments.get(name, 0)


def load_promises(directory: Path, owned: Sets) -> tuple[RecordedPromises, list[AuditFinding]]:
    """Load the promises that hold beside what is `owned`, and the problems of the file."""
    path = directory / POLICY_STATE_FILE
    data = read_state(path)
    if data is None:
        return RecordedPromises(), []
    try:
        content = policy_state.decode(data)
    except CheckpointError as error:
        return RecordedPromises(), [AuditFinding("state", str(path), "", "", f"{path.name} does not count: {error}")]
    texts = {uid: dict(named) for uid, named in content.originals.items()}
    for uid, text in content.pod_originals.items():
        texts.setdefault(uid, {})[""] = text
    promised: dict[str, dict[str, Bits]] = {}
    for uid, named in texts.items():
        for name, text in named.items():
            had, cpus = owned.get(uid, {}).get(name, 0), parse_bits_or_empty(text)
            # A promise of CPUs that the container no longer has is out of date; an equal one adds nothing.
            if cpus and not cpus & ~had and cpus != had:
                promised.setdefault(uid, {})[name] = cpus
    intents, mixed = policy_state.read_intents(data), policy_state.read_mixed(data, owned)
    machine = content.machine.value() if content.machine is not None else None
    first = bits_of(cpu for cpu, one in machine.cpus.items() if not one.thread) if machine is not None else 0
    return RecordedPromises(promised, intents, mixed, content.classes, first), []


def promised_rows(promises: RecordedPromises, owned: Sets) -> Iterator[PromisedCPUs]:
    """Yield the containers and pods that have more CPUs than were promised, for people."""
    for uid, named in sorted(promises.promised.items()):
        for name, promised in sorted(named.items()):
            held = owned.get(uid, {}).get(name, 0)
            yield PromisedCPUs(uid, name, format_bits(promised), format_bits(held & ~promised))


def find_outside_policy(
    policy: PodslicePolicy, listed: Iterable[PromisedCPUs], promises: RecordedPromises, owned: Sets
) -> Iterator[AuditFinding]:
    """Yield assignments that this policy would not allow; they stay as they are."""
    # CPUs beyond the promised ones come from a resize, which only such a policy grants.
    for one in () if policy.resize.exclusive else listed:
        text = "has CPUs beyond those promised to it, and the policy resizes no exclusive CPUs: it keeps them"
        yield AuditFinding("heldOutsidePolicy", _whose(one.pod, one.container), one.promised, one.beyond, text)
    known = {one.name for one in policy.cpu_classes} | {IMPLICIT_CLASS, OTHERS} if policy.cpu_classes else set()
    for uid, named in sorted(promises.classes.items()):
        for name, words in sorted(named.items()):
            held = owned.get(uid, {}).get(name, 0)
            if held and not known & {word.removesuffix("!") for word in words}:
                text = f"was given CPUs of class {', '.join(words)}, which the policy does not have: it keeps them"
                yield AuditFinding("heldOutsidePolicy", _whose(uid, name), ", ".join(words), format_bits(held), text)


def _whose(uid: str, name: str) -> str:
    return f"pod {uid} container {name}" if name else f"pod {uid}"
