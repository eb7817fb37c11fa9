"""The amounts that a node keeps for its system today, below which advice does not go without a word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from podslice.advise.reserve.formulas import KEPT, MIB, ReservedAmounts
from podslice.config.kubelet import KubeletConfig
from podslice.config.thresholds import ThresholdError, parse_hard_thresholds
from podslice.machine.model import Machine
from podslice.values.cpuset import CPUSetError, parse_bits
from podslice.values.quantity import BINARY_SI, Quantity, QuantityError, bytes_text, plural


class Kept(NamedTuple):
    """What a node keeps today, and notes about what its configuration says and no node can keep."""

    amounts: ReservedAmounts
    notes: tuple[str, ...]


def kept_today(config: KubeletConfig, machine: Machine) -> Kept:
    """Return what the present configuration reserves: millicores, bytes of systemReserved and kubeReserved, and the
    threshold of hard eviction, both in whole MiB. An amount that no kubelet reads, or that leaves pods nothing of the
    machine, counts as 0, with a note."""
    parts = (config.kube_reserved, config.system_reserved)
    cpu, notes = _kept_cpu(config, machine), []
    memory = sum(read_amount(part.get("memory", "0")).value() for part in parts)
    eviction = _kept_eviction(config, machine)
    if cpu >= 1000 * machine.cpu_count:
        notes.append(f"{cpu_text(cpu)} CPU are reserved today, of {machine.cpu_count}: that leaves pods none")
        cpu = 0
    if memory + eviction >= machine.memory and memory + eviction:
        there = bytes_text(machine.memory)
        notes.append(f"{bytes_text(memory + eviction)} of memory is reserved today, of {there}: that leaves pods none")
        memory = eviction = 0
    unread = [text for part in parts for text in part.values() if not _is_readable(text)]
    notes += [f"{text!r} is reserved today, which no kubelet reads" for text in unread]
    return Kept(ReservedAmounts(cpu, _whole_mib(memory), _whole_mib(eviction), (KEPT,) * 3), tuple(notes))


def _is_readable(text: str) -> bool:
    try:
        Quantity.parse(text)
    except QuantityError:
        return False
    return True


def read_amount(text: str) -> Quantity:
    """Return the quantity of a text, 0 for one that no kubelet reads."""
    try:
        return Quantity.parse(text)
    except QuantityError:
        return Quantity(0)


def _kept_cpu(config: KubeletConfig, machine: Machine) -> int:
    if config.reserved_system_cpus:
        try:
            # A list replaces both amounts, and CPUs that are offline keep nothing.
            return 1000 * (parse_bits(config.reserved_system_cpus) & machine.cpus.bits).bit_count()
        except CPUSetError:
            return 0
    parts = (config.kube_reserved, config.system_reserved)
    return sum(read_amount(part.get("cpu", "0")).milli_value() for part in parts)


def _kept_eviction(config: KubeletConfig, machine: Machine) -> int:
    # A kubelet's own default is not a choice of anybody; the advice begins at as much.
    try:
        threshold = parse_hard_thresholds(config.eviction_thresholds).get("memory.available")
    except ThresholdError:
        return 0
    return 0 if threshold is None else threshold.of(Quantity.of(machine.memory, BINARY_SI)).value()


def _whole_mib(amount: int) -> int:
    return -(-amount // MIB) * MIB


def less_than_kept(needed: ReservedAmounts, kept: ReservedAmounts, *, cpus: int) -> Iterator[str]:
    """Yield what the advice, which reserves so many whole CPUs, reserves less of than the node keeps today."""
    if 1000 * cpus < kept.milli_cpu:
        yield f"{plural(cpus, 'CPU')} instead of {cpu_text(kept.milli_cpu)}"
    if needed.memory < kept.memory:
        yield f"{bytes_text(needed.memory)} of memory instead of {bytes_text(kept.memory)}"
    if needed.eviction < kept.eviction:
        was, now = bytes_text(kept.eviction), bytes_text(needed.eviction)
        yield f"evictionHard memory.available {now} instead of {was}"


def cpu_text(milli: int) -> str:
    """Return millicores as a manifest writes them: `390m`, `4`."""
    return Quantity.milli(milli).canonical()
