"""`podslice_policy_state`: the state that podslice keeps beside the managers' files, for nodes with a PodslicePolicy.

{"data":"{\\"version\\":1,\\"bootId\\":\\"\\",\\"originals\\":{\\"u1\\":{\\"c\\":\\"2-5\\"}}}","checksum":3053661560}

`originals` are the CPUs promised to containers at their admission, where they have more now, `podOriginals` those of
pods with pod CPUs; `order` the CPUs in the order in which they came, where that is not the promised ones and then the
others, both ascending. The managers' files win: entries that contradict them are dropped. `classes` are the CPU classes
under which containers got their CPUs, under an empty name the pod as a whole, best first, `NAME!` where it was
required: containers grow in these classes, whatever the rules are by then. `mixed` are the containers with exclusive
and shared CPUs: how many they own, and the thousandths of a CPU that they request besides. `intents` are resizes and
moves that were being written when the process ended. `plugins` are the plugins' notes on containers, at most 4 KiB
each. `bootId` and `machine` (each CPU's place in the hardware, each NUMA node's CPUs and memory) are for the start
after a reboot; `bootId` is empty in simulations. A kubelet does not know this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from podslice.api.pod.mixed import MixedShare
from podslice.machine.identity import MachineRecord, NodeRecord, parse_identity
from podslice.machine.memory import Block
from podslice.node.cpu.state import CPUState, Intent, Loans, PodCPUs, PodMemory
from podslice.values.cpuset import MAX_CPU_ID, Bits, bits_of, format_bits, iter_bits, parse_bits, parse_bits_or_empty
from podslice.values.go.godump import data_checksum, decode_data
from podslice.values.go.gojson import CORRUPT, CheckpointError, dump_string


class BootRecord(NamedTuple):
    """The facts that must outlive a reboot: the kernel's id of the boot, and the machine in it."""

    id: str
    machine: MachineRecord


VERSION = 1
MEMBERS: Final = frozenset(
    {"version", "bootId", "machine", "originals", "podOriginals", "order", "classes", "mixed", "intents", "plugins"}
)
"""Members of the file that this release knows."""
Mixed: TypeAlias = Mapping[str, Mapping[str, MixedShare]]
"""Containers with exclusive and shared CPUs, by pod UID and name."""
NO_MIXED: Final[Mixed] = MappingProxyType({})
CPUId: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_CPU_ID)]


class PodCPUTexts(msgspec.Struct, rename="camel", omit_defaults=True):
    """One pod's holding in the form of the file."""

    containers: dict[str, str] = {}
    loans: dict[str, list[CPUId]] = {}
    # Files that are written must be read by later releases, so members keep the names that they had first.
    pod_cpus: str = msgspec.field(default="", name="bubble")
    pod_loans: str = msgspec.field(default="", name="bubbleLoans")
    memory: dict[str, tuple[Block, ...]] = {}
    pod_memory: tuple[Block, ...] = ()

    @classmethod
    def of(cls, had: PodCPUs) -> PodCPUTexts:
        containers = {name: format_bits(cpus) for name, cpus in sorted(had.assignments.items())}
        loans = {name: list(cpus) for name, cpus in sorted(had.loans.items())}
        memory = dict(sorted(had.memory.containers.items()))
        return cls(containers, loans, format_bits(had.pod_cpus), format_bits(had.pod_loans), memory, had.memory.whole)

    def value(self) -> PodCPUs:
        return PodCPUs(
            {name: parse_bits_or_empty(cpus) for name, cpus in self.containers.items()},
            {name: tuple(cpus) for name, cpus in self.loans.items()},
            parse_bits_or_empty(self.pod_cpus),
            parse_bits_or_empty(self.pod_loans),
            PodMemory(self.memory, self.pod_memory),
        )


class IntentTexts(msgspec.Struct, rename={"before": "from", "after": "to"}, omit_defaults=True):
    """A resize or a `move` that is being written, in the form of the file."""

    before: PodCPUTexts
    after: PodCPUTexts
    move: bool = False

    @classmethod
    def of(cls, intent: Intent) -> IntentTexts:
        return cls(PodCPUTexts.of(intent.before), PodCPUTexts.of(intent.after), intent.move)

    def value(self) -> Intent:
        return Intent(self.before.value(), self.after.value(), self.move)


class MixedTexts(msgspec.Struct):
    """A container with exclusive and shared CPUs, in the form of the file; `shared` in thousandths of a CPU."""

    exclusive: Annotated[int, msgspec.Meta(ge=1, le=MAX_CPU_ID)]
    shared: Annotated[int, msgspec.Meta(ge=0)]


class NodeTexts(msgspec.Struct):
    """A NUMA node of the machine, in the form of the file; `memory` in bytes."""

    cpus: str
    memory: int


class MachineTexts(msgspec.Struct):
    """The machine in the form of the file: by CPU its place `package/die/core/thread`."""

    cpus: dict[str, str] = {}
    nodes: dict[str, NodeTexts] = {}

    @classmethod
    def of(cls, machine: MachineRecord) -> MachineTexts:
        cpus = {str(cpu): str(identity) for cpu, identity in sorted(machine.cpus.items())}
        nodes = {str(id): NodeTexts(format_bits(one.cpus), one.memory) for id, one in sorted(machine.nodes.items())}
        return cls(cpus, nodes)

    def value(self) -> MachineRecord | None:
        """Return the record, None where it is not complete."""
        try:
            cpus = {int(cpu): parse_identity(text) for cpu, text in self.cpus.items()}
            nodes = {int(id): NodeRecord(parse_bits(one.cpus), one.memory) for id, one in self.nodes.items()}
        except ValueError:
            return None
        # A record of a part of the machine would look like CPUs that the reboot added, so it counts as none.
        known = {cpu: identity for cpu, identity in cpus.items() if identity is not None and 0 <= cpu <= MAX_CPU_ID}
        return MachineRecord(known, nodes) if known and len(known) == len(cpus) else None


class PolicyContent(msgspec.Struct, rename="camel"):
    """Content of the file: CPU lists, by pod UID and where they belong to containers by container."""

    version: int
    boot_id: str = ""
    machine: MachineTexts | None = None
    originals: dict[str, dict[str, str]] = {}
    pod_originals: dict[str, str] = {}
    order: dict[str, dict[str, list[CPUId]]] = {}
    classes: dict[str, dict[str, list[str]]] = {}
    mixed: dict[str, dict[str, MixedTexts]] = {}
    intents: dict[str, IntentTexts] = {}
    plugins: dict[str, dict[str, dict[str, str]]] = {}

    def growth(self, entries: Mapping[str, Mapping[str, str] | None]) -> dict[str, dict[str, str]]:
        """Return the CPUs that containers with these CPUs have beyond the promised ones, where the promise still
        fits."""
        found: dict[str, dict[str, str]] = {}
        for uid, named in self.originals.items():
            for name, text in named.items():
                promised, held = parse_bits_or_empty(text), parse_bits_or_empty((entries.get(uid) or {}).get(name, ""))
                if promised & ~held == 0 and promised != held:
                    found.setdefault(uid, {})[name] = format_bits(held & ~promised)
        return found


def encode(
    state: CPUState,
    intents: Mapping[str, Intent] = MappingProxyType({}),
    boot: BootRecord | None = None,
    mixed: Mixed = NO_MIXED,
) -> bytes:
    """Return the file for this state, with the resizes that are being written by pod; `boot` is for comparison after a
    reboot."""
    content: dict[str, Any] = {"version": VERSION, "bootId": "" if boot is None else boot.id}
    if boot is not None:
        content["machine"] = MachineTexts.of(boot.machine)
    originals, order = {}, {}
    for uid, loans in sorted(state.loans.items()):
        promised = {name: state.promised(uid, name) for name in sorted(loans)}
        originals[uid] = {name: format_bits(cpus) for name, cpus in promised.items()}
        # An ascending order is not written: readers assume it where there is none.
        mingled = {
            name: [*iter_bits(cpus), *loans[name]] for name, cpus in promised.items() if _is_out_of_order(loans[name])
        }
        if mingled:
            order[uid] = mingled
    content |= {"originals": originals} if originals else {}
    if state.pod_loans:
        content["podOriginals"] = {uid: format_bits(state.promised_to_pod(uid)) for uid in sorted(state.pod_loans)}
    content |= {"order": order} if order else {}
    if state.classes:
        content["classes"] = {uid: dict(sorted(named.items())) for uid, named in sorted(state.classes.items())}
    if state.memos:
        content["plugins"] = {uid: dict(sorted(named.items())) for uid, named in sorted(state.memos.items())}
    if mixed:
        content["mixed"] = {
            uid: {name: MixedTexts(*share) for name, share in sorted(mixed[uid].items())} for uid in sorted(mixed)
        }
    if intents:
        content["intents"] = {uid: IntentTexts.of(intents[uid]) for uid in sorted(intents)}
    return envelop(content)


def read_boot_record(data: bytes | None) -> BootRecord | None:
    """Return the boot in which a file was written, and its machine; None where the file lacks it or is damaged."""
    try:
        content = None if data is None else decode(data)
    except CheckpointError:
        return None
    machine = None if content is None or content.machine is None else content.machine.value()
    return None if content is None or machine is None else BootRecord(content.boot_id, machine)


def envelop(content: Mapping[str, Any]) -> bytes:
    """Return the file with this content, under its checksum."""
    # JSON in JSON, as in the kubelet's files: the checksum is over the text of `data`, not over its members.
    data = msgspec.json.encode(content).decode()
    return f'{{"data":{dump_string(data)},"checksum":{data_checksum(data)}}}'.encode()


def _is_out_of_order(loaned: tuple[int, ...]) -> bool:
    return list(loaned) != sorted(loaned)


def decode(data: bytes) -> PolicyContent:
    """Read a file, checksum included. Raises `CheckpointError`."""
    envelope = decode_data(data)
    if data_checksum(envelope.data) != envelope.stored_checksum:
        raise CheckpointError(CORRUPT)
    content = read(data)
    if content.version != VERSION:
        raise CheckpointError(f"version {content.version} is not {VERSION}")
    return content


def read(data: bytes) -> PolicyContent:
    """Read a file whatever its checksum and version. Raises `CheckpointError`."""
    try:
        return msgspec.json.decode(decode_data(data).data, type=PolicyContent)
    except msgspec.MsgspecError as error:
        raise CheckpointError(str(error)) from None


def read_unknown(data: bytes) -> dict[str, Any]:
    """Return the members of an intact file that this release does not know. Raises `CheckpointError`."""
    try:
        content = msgspec.json.decode(decode_data(data).data, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise CheckpointError(str(error)) from None
    return {name: value for name, value in content.items() if name not in MEMBERS}


def with_loans(state: CPUState, data: bytes | None) -> CPUState:
    """Return the state with the loans in a file that fit its assignments; unchanged where the file is missing or
    damaged."""
    if data is None:
        return state
    try:
        content = decode(data)
    except CheckpointError:
        return state
    loans: Loans = {}
    for uid, name, loaned in _read_loans(content, state.assignments):
        loans.setdefault(uid, {})[name] = loaned
    return replace(state, loans=loans, pod_loans=dict(_read_pod_loans(content, state.pod_cpus)))


def with_classes(state: CPUState, data: bytes) -> CPUState:
    """Return the state with the CPU classes that a file names for owners of CPUs; without any where it is damaged."""
    try:
        named = decode(data).classes
    except CheckpointError:
        return state
    found = {
        uid: {name: tuple(words) for name, words in own.items() if words and _has_cpus(state, uid, name)}
        for uid, own in named.items()
    }
    return replace(state, classes={uid: own for uid, own in found.items() if own})


def with_memos(state: CPUState, data: bytes) -> CPUState:
    """Return the state with the memos that plugins keep about owners of CPUs; without any if the file is damaged."""
    try:
        named = decode(data).plugins
    except CheckpointError:
        return state
    found = {uid: {name: memos for name, memos in own.items() if memos and _has_cpus(state, uid, name)}
             for uid, own in named.items()}  # fmt: skip
    return replace(state, memos={uid: own for uid, own in found.items() if own})


def _has_cpus(state: CPUState, uid: str, name: str) -> bool:
    return bool(state.assignment(uid, name) if name else state.pod_cpus.get(uid))


def read_intents(data: bytes | None) -> dict[str, Intent]:
    """Return the resizes and moves that were being written, by pod; none where the file is missing or damaged."""
    try:
        intents = {} if data is None else decode(data).intents
    except CheckpointError:
        return {}
    return {uid: one.value() for uid, one in intents.items()}


def read_mixed(data: bytes | None, assignments: Mapping[str, Mapping[str, Bits]]) -> dict[str, dict[str, MixedShare]]:
    """Return the containers with exclusive and shared CPUs that a file names and that have CPUs; none where it is
    missing or damaged."""
    try:
        named = {} if data is None else decode(data).mixed
    except CheckpointError:
        return {}
    found = {
        uid: {
            name: MixedShare(one.exclusive, one.shared)
            for name, one in containers.items()
            if assignments.get(uid, {}).get(name)
        }
        for uid, containers in named.items()
    }
    return {uid: containers for uid, containers in found.items() if containers}


def _read_pod_loans(content: PolicyContent, pod_cpus: Mapping[str, Bits]) -> Iterator[tuple[str, Bits]]:
    """Yield the loaned pod CPUs in a file that fit the state's: (pod UID, CPUs)."""
    for uid, text in content.pod_originals.items():
        promised, held = parse_bits_or_empty(text), pod_cpus.get(uid, 0)
        # The kubelet's file may be newer than this one, after a kill between the two writes; then it alone counts.
        if promised and promised & ~held == 0 and promised != held:
            yield uid, held & ~promised


def _read_loans(
    content: PolicyContent, assignments: Mapping[str, Mapping[str, Bits]]
) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Yield the loans in a file that fit the assignments: (pod UID, container, CPUs in the order they came)."""
    for uid, named in content.originals.items():
        for name, text in named.items():
            held = assignments.get(uid, {}).get(name, 0)
            promised = parse_bits_or_empty(text)
            if not promised or promised & ~held or promised == held:
                continue
            loaned = tuple(cpu for cpu in content.order.get(uid, {}).get(name, ()) if not promised >> cpu & 1)
            # The order of a damaged list cannot be known: CPU ids ascending then, as if all loans had come together.
            if bits_of(loaned) != held & ~promised or len(set(loaned)) != len(loaned):
                loaned = tuple(iter_bits(held & ~promised))
            yield uid, name, loaned
