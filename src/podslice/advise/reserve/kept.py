"""The amounts that a node keeps for its system today, below which advice does not go without a word."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.advise.reserve.formulas import KEPT, MIB, ReservedAmounts
from podslice.config.kubelet import KubeletConfig
from podslice.config.thresholds import ThresholdError, parse_hard_thresholds
from podslice.machine.model import Machine
from podslice.values.cpuset import CPUSetError, parse_bits
from podslice.values.quantity import BINARY_SI, Quantity, QuantityError, bytes_text


def kept_today(config: KubeletConfig, machine: Machine) -> ReservedAmounts:
    """Return what the present configuration reserves: millicores, bytes of systemReserved and kubeReserved, and the
    threshold of hard eviction, both in whole MiB. An amount that no kubelet reads counts as 0."""
    parts = (config.kube_reserved, config.system_reserved)
    memory = sum(read_amount(part.get("memory", "0")).value() for part in parts)
    eviction = _whole_mib(_kept_eviction(config, machine))
    return ReservedAmounts(_kept_cpu(config, machine), _whole_mib(memory), eviction, (KEPT,) * 3)


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
    # A kubelet's own default is no choice of anybody; the advice begins at as much.
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
        yield f"{cpus} CPU{'' if cpus == 1 else 's'} instead of {cpu_text(kept.milli_cpu)}"
    if needed.memory < kept.memory:
        yield f"{bytes_text(needed.memory)} of memory instead of {bytes_text(kept.memory)}"
    if needed.eviction < kept.eviction:
        was, now = bytes_text(kept.eviction), bytes_text(needed.eviction)
        yield f"evictionHard memory.available {now} instead of {was}"


def cpu_text(milli: int) -> str:
    """Return millicores as a manifest writes them: `390m`, `4`."""
    return Quantity.milli(milli).canonical()
