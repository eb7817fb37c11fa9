"""The CPU state on a machine other than the one it was written on (docs/hotplug.md)."""

from __future__ import annotations

from msgspec.structs import replace

from podslice.node.cpu.state import CPUState, assignable
from podslice.node.rules import CPURules
from podslice.values.cpuset import Bits


def ledger_on(state: CPUState, rules: CPURules, before: Bits) -> CPUState:
    """Return the state on the machine of these rules, where it was on one with the CPUs `before`. New CPUs go to the
    owner they are assigned to, else to DEFAULT; where nothing else is left, DEFAULT is what is reserved."""
    online = rules.topology.all_cpus
    offline = (state.offline | before) & ~online
    default = (state.default & online) | (online & ~before & ~state.owned())
    if rules.options.strict_cpu_reservation:
        default = assignable(default, rules.reserved) or rules.reserved & online
    return replace(state, default=default, offline=offline)


def ledger_at_start(state: CPUState, rules: CPURules, listed_offline: Bits) -> CPUState:
    """Return the state of a state file on the machine of these rules, in the same boot. `listed_offline` are the CPUs
    that the kernel lists as offline; the state does not change where it names one that is neither online nor listed."""
    filed = state.default | state.owned()
    if not filed or filed & ~rules.topology.all_cpus & ~listed_offline:
        return state
    strict = rules.options.strict_cpu_reservation
    # A strict reservation keeps reserved CPUs out of the file; they were there all the same.
    hidden = rules.reserved if strict else 0
    if strict and state.default & rules.reserved and assignable(state.default, rules.reserved):
        return state
    return ledger_on(state, rules, filed | hidden)


def reserved_by_number(state: CPUState, rules: CPURules) -> Bits:
    """Return the reserved CPUs where only their number is configured: those of this machine's rules, or, where the
    state has given some of them to owners, as many without an owner."""
    count = rules.reserved.bit_count()
    if rules.options.strict_cpu_reservation:
        free = rules.topology.all_cpus & ~(state.default | state.owned())
    else:
        free = state.default & rules.topology.all_cpus
    if not rules.reserved & ~free or not state.default:
        return rules.reserved
    return rules.picker.take(free, count).cpus if free.bit_count() >= count else rules.reserved
