"""Advice on a node's reservation for its system: `advise` returns lines of a KubeletConfiguration with which a kubelet
starts.

Amounts are what was measured or what a provider's formula reserves, and by default never less than what the node keeps
today. CPUs are whole cores at a place that suits the machine. Memory is divided among NUMA nodes such that the Memory
Manager accepts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from podslice.advise.reserve import formulas
from podslice.advise.reserve.formulas import (
    AUTO,
    FORMULAS,
    MIB,
    MeasuredAmounts,
    ReservedAmounts,
    amounts,
    largest,
)
from podslice.advise.reserve.kept import cpu_text, kept_today, less_than_kept, read_amount
from podslice.advise.reserve.options import STRICT, option_lines
from podslice.advise.reserve.placement import PlacedReservation, Site, divide_memory, place, site_of
from podslice.config.kubelet import DEFAULT_EVICTION_HARD, KubeletConfig, MemoryReservation
from podslice.config.reservation import node_resources, prepare_reservations
from podslice.evidence.provenance import Provenance
from podslice.machine.devices import DeviceInventory
from podslice.machine.model import Machine, TopologyError
from podslice.node.node import Node
from podslice.values.cpuset import Bits, format_bits
from podslice.values.errors import InputError, StartError
from podslice.values.quantity import bytes_text
from podslice.values.quirks import PROFILE_RELEASES


class ReservationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of advice. `pods`: the most that run on the node. `placement` None: the one that suits the
    machine. `strict`: shared pods stay off the reserved CPUs. `housekeeping`: one core more on each NUMA node with
    devices."""

    pods: int = 110
    formula: str = formulas.DEFAULT
    placement: str | None = None
    strict: bool = False
    housekeeping: bool = False
    found: MeasuredAmounts | None = None
    """Amounts measured on the node."""


class KeptToday(msgspec.Struct, frozen=True, rename="camel"):
    """The amounts that the present configuration keeps for the system: as a number of CPUs, as memory in
    systemReserved and kubeReserved, and as evictionHard's `memory.available`."""

    cpu: str
    memory: str
    eviction: str


class Origins(msgspec.Struct, frozen=True):
    """The origin of each amount: the title of a provider's formula, `measured`, or `kept today`."""

    cpu: str
    memory: str
    eviction: str


class ReservedNode(msgspec.Struct, frozen=True, rename="camel"):
    """The reservation on one NUMA node. `classes`: its reserved CPUs by kind of core, on machines with several;
    `devices`: how many it has."""

    numa_node: int
    cpus: str
    memory: str
    devices: int = 0
    classes: dict[str, str] = {}


class FormulaAmounts(msgspec.Struct, frozen=True):
    """The amounts that a provider's formula reserves on such a machine. `source`: the address of the formula."""

    name: str
    title: str
    cpu: str
    memory: str
    eviction: str
    source: str


class Allocatable(msgspec.Struct, frozen=True):
    """The amounts that pods may request."""

    cpu: str
    memory: str


class ReservationAdvice(msgspec.Struct, frozen=True, rename="camel"):
    """Advice for one machine. `cpu`, `memory` and `eviction` are what to reserve, `origins` where they come from,
    `kept` what the node keeps today, `less` where the advice is below that. `cpus` are the whole cores reserved,
    chosen by `placement` for `reason`. `lines` are those of a KubeletConfiguration; a kubelet of the release in
    `provenance` starts with them and the static policies. `formulas` holds the amounts of each provider, `notes` what
    is worth knowing."""

    machine: str
    pods: int
    formula: str
    cpu: str
    memory: str
    eviction: str
    origins: Origins
    kept: KeptToday
    less: tuple[str, ...]
    cpus: str
    placement: str
    reason: str
    nodes: tuple[ReservedNode, ...]
    lines: dict[str, Any]
    before: Allocatable
    after: Allocatable
    formulas: tuple[FormulaAmounts, ...]
    notes: tuple[str, ...] = ()
    provenance: Provenance = Provenance()


def advise(
    machine: Machine,
    config: KubeletConfig | None = None,
    *,
    devices: DeviceInventory | None = None,
    request: ReservationRequest | None = None,
    profile: str = "podslice",
) -> ReservationAdvice:
    """Advise on the reservation of a machine for a kubelet of the profile's release.

    `config` is the node's present configuration: formula `auto` goes not below what it keeps, its systemReserved memory
    counts, and settings other than reservations stay. Raises `InputError`, and `StartError` where a kubelet would not
    start with the lines, which it does on every machine that it starts on at all.
    """
    config, request = config or KubeletConfig(), request or ReservationRequest()
    try:
        site = site_of(machine, devices)
    except TopologyError as error:
        raise InputError(f"has no CPUs to reserve: {error}", path=machine.name or "machine") from None
    needed = amounts(
        request.formula, cpus=site.topology.num_cpus, memory=machine.memory, pods=request.pods, found=request.found
    )
    kept, ignored = kept_today(config, machine)
    # Only a day's measurements show that less than today is enough.
    if request.formula == AUTO and not (request.found is not None and request.found.covers_a_day):
        needed = largest(needed, kept)
    placed = place(site, -(-needed.milli_cpu // 1000), request.placement, housekeeping=request.housekeeping)
    shares = _shares(site, placed.cpus, needed)
    options = option_lines(config, PROFILE_RELEASES[profile], strict=request.strict)
    lines = _lines(config, placed.cpus, needed, shares, options.lines)
    lines, advised, notes = _try_start(machine, config, devices, lines, profile)
    return ReservationAdvice(
        machine.name,
        request.pods,
        request.formula,
        *_amount_texts(needed),
        Origins(*needed.origins),
        KeptToday(*_amount_texts(kept)),
        tuple(less_than_kept(needed, kept, cpus=placed.cpus.bit_count())),
        format_bits(placed.cpus),
        placed.rule,
        placed.reason,
        tuple(_nodes(site, placed.cpus, shares)),
        lines,
        _allocatable(machine, config),
        _allocatable(machine, advised),
        tuple(_by_formula(site, request.pods)),
        (
            *ignored,
            *placed.notes,
            *_notes(site, placed, needed, request),
            *options.notes,
            *_move_notes(config, placed),
            *notes,
        ),
    )


def _amount_texts(amounts: ReservedAmounts) -> tuple[str, str, str]:
    return cpu_text(amounts.milli_cpu), bytes_text(amounts.memory), bytes_text(amounts.eviction)


def _move_notes(config: KubeletConfig, placed: PlacedReservation) -> Iterator[str]:
    """Yield that other CPUs are reserved than today, which a kubelet with a state file does not survive."""
    today = config.reserved_system_cpus
    if today and config.cpu_manager_policy == "static" and today != format_bits(placed.cpus):
        yield (
            f"CPUs {today} are reserved today: drain the node before it changes, because a kubelet whose pods own CPUs "
            "does not start with other reserved CPUs (docs/state.md)"
        )


def advised_config(config: KubeletConfig, advice: ReservationAdvice) -> KubeletConfig:
    """Return the configuration with the lines of the advice; without them the Memory Manager stays off."""
    fields = {"memory_manager_policy": "None", "reserved_memory": (), **_fields(advice.lines)}
    return msgspec.structs.replace(config, **fields)


def _try_start(
    machine: Machine, config: KubeletConfig, devices: DeviceInventory | None, lines: dict[str, Any], profile: str
) -> tuple[dict[str, Any], KubeletConfig, tuple[str, ...]]:
    """Start a kubelet with the lines; return the lines and the whole configuration that it started with. They are
    without the static Memory Manager where that does not start on such a machine. Raises `StartError`."""
    advised = msgspec.structs.replace(config, **_fields(lines))
    try:
        Node(machine, advised, profile=profile, devices=devices)
    except StartError as error:
        # Only the Memory Manager can be left out; with any other error no advice starts.
        if error.stage != "memoryManager":
            raise
        less = {name: value for name, value in lines.items() if name not in ("memoryManagerPolicy", "reservedMemory")}
        advised = msgspec.structs.replace(config, memory_manager_policy="None", reserved_memory=(), **_fields(less))
        Node(machine, advised, profile=profile, devices=devices)
        return less, advised, (f"memoryManagerPolicy Static does not start on this machine: {error.message}",)
    return lines, advised, ()


def _shares(site: Site, cpus: Bits, needed: ReservedAmounts) -> dict[int, int]:
    """Return the reserved bytes by NUMA node; nodes without CPUs reserve none. Raises `InputError`."""
    sizes = {node.id: node.memory for node in site.machine.nodes if node.id in site.topology.numa_nodes}
    owned = {node: (mine & cpus).bit_count() for node, mine in site.topology.numa_nodes.items()}
    total = needed.total_memory
    try:
        return divide_memory(total, owned, sizes)
    except ValueError:
        there = bytes_text(sum(sizes.values()))
        raise InputError(
            f"the formula reserves {bytes_text(total)}, the NUMA nodes with CPUs have {there}",
            path="--pods",
            remedy="fewer pods, or --formula gke, whose memory depends on the machine only",
        ) from None


def _lines(
    config: KubeletConfig, cpus: Bits, needed: ReservedAmounts, shares: dict[int, int], options: dict[str, Any]
) -> dict[str, Any]:
    """Return the fields of a KubeletConfiguration by their YAML names."""
    system, kube = dict(config.system_reserved), dict(config.kube_reserved)
    # reservedSystemCPUs overrules both amounts, which would only mislead (PS410).
    for one in (system, kube):
        one.pop("cpu", None)
    lines = {"cpuManagerPolicy": "static", **options, "reservedSystemCPUs": format_bits(cpus)}
    # What the node reserves for the system already stays there; kubeReserved holds the rest.
    memory = needed.memory
    kept = min(read_amount(system.pop("memory", "0")).value(), memory)
    if kept:
        system["memory"] = bytes_text(kept)
    kube["memory"] = bytes_text(memory - kept)
    if system or config.system_reserved:
        lines["systemReserved"] = system
    # Unless configured otherwise a kubelet merges no defaults into evictionHard: what is left out there is off.
    thresholds = DEFAULT_EVICTION_HARD | dict(config.eviction_hard or {})
    reserved = [
        {"numaNode": node, "limits": {"memory": bytes_text(size)}} for node, size in shares.items() if size
    ]  # fmt: skip
    return lines | {
        "kubeReserved": kube,
        "evictionHard": thresholds | {"memory.available": bytes_text(needed.eviction)},
        "memoryManagerPolicy": "Static",
        "reservedMemory": reserved,
    }


def _fields(lines: dict[str, Any]) -> dict[str, Any]:
    """Return the lines as fields of a configuration."""
    names = {field.encode_name: field.name for field in msgspec.structs.fields(KubeletConfig)}
    fields = {names[name]: value for name, value in lines.items()}
    if "reserved_memory" in fields:
        fields["reserved_memory"] = tuple(
            MemoryReservation(one["numaNode"], one["limits"]) for one in fields["reserved_memory"]
        )
    return fields


def _nodes(site: Site, cpus: Bits, shares: dict[int, int]) -> Iterator[ReservedNode]:
    for node, mine in site.topology.numa_nodes.items():
        kinds = {
            kind.name: format_bits(kind.cpus.bits & mine & cpus)
            for kind in site.machine.core_types
            if kind.cpus.bits & mine & cpus
        }
        memory = bytes_text(shares.get(node, 0))
        yield ReservedNode(node, format_bits(mine & cpus), memory, site.devices[node], kinds)


def _allocatable(machine: Machine, config: KubeletConfig) -> Allocatable:
    """Return the amounts that pods may request; for a configuration with which no kubelet starts, the capacity."""
    try:
        total = prepare_reservations(config, machine).total
    except StartError:
        # Nothing counts as reserved then: the capacity stands for what pods may request.
        total = {}
    left = node_resources(machine, config, total).allocatable
    return Allocatable(left["cpu"].canonical(), left["memory"].canonical())


def _by_formula(site: Site, pods: int) -> Iterator[FormulaAmounts]:
    for name, rule in FORMULAS.items():
        one = amounts(name, cpus=site.topology.num_cpus, memory=site.machine.memory, pods=pods)
        yield FormulaAmounts(name, rule.title, *_amount_texts(one), rule.source)


def _measured_words(found: MeasuredAmounts) -> str:
    hours = f"{found.hours} hour{'' if found.hours == 1 else 's'}"
    if not found.samples:
        return hours
    if found.samples == 1:
        return "one sample, which says little about the peaks of a day"
    return f"{found.samples} samples in {hours}, the most of them"


def _notes(
    site: Site, placed: PlacedReservation, needed: ReservedAmounts, request: ReservationRequest
) -> Iterator[str]:
    kept = placed.cpus.bit_count()
    if kept * 1000 > needed.milli_cpu:
        whole = "cores" if site.topology.num_cpus > site.topology.num_cores else "CPUs"
        yield f"the static policy keeps whole {whole}: {kept} of the CPUs for {cpu_text(needed.milli_cpu)}"
    if (found := request.found) is not None:
        cpu, size = cpu_text(-int(-found.milli_cpu // 1)), bytes_text(-int(-found.memory // MIB) * MIB)
        yield f"measured in {_measured_words(found)}: {cpu} CPU and {size}, margins included"
    if request.strict:
        yield f"{STRICT}: shared pods have only what is neither reserved nor exclusive"
