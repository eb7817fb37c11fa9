"""Rules that compare what a node reserves with the advice of `podslice reserve`."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.advise.lint.model import INFO, MACHINE, Problem, Rule, count_cpus
from podslice.advise.lint.subject import NodeSubject
from podslice.advise.reserve.formulas import DEFAULT, FORMULAS, MAX, MEASURED, amounts
from podslice.advise.reserve.placement import site_of
from podslice.config.reservation import max_pods
from podslice.node.view import NodeView
from podslice.values.cpuset import format_bits
from podslice.values.quantity import Quantity, bytes_text, cpus_text

_OF_AUTO, _OF_MAX = ("GKE and EKS keep", "EKS keeps"), ("providers keep as much as",) * 2


def _below_advice(subject: NodeSubject) -> Iterator[Problem]:
    view = subject.view
    if view is None or not (view.pins_cpus or view.binds_memory):
        return
    rules = view.policy.reservation
    pods = rules.pods or max_pods(view.machine, view.config)
    formula = DEFAULT if rules.formula == MEASURED else rules.formula
    of_one = (f"{FORMULAS[formula].title} keeps",) * 2 if formula in FORMULAS else _OF_AUTO
    cpus_by, memory_by = _OF_MAX if formula == MAX else of_one
    advised = amounts(formula, cpus=view.topology.num_cpus, memory=view.machine.memory, pods=pods)
    fix = "podslice reserve prints settings that reserve enough"
    have = view.reserved.bit_count()
    if view.pins_cpus and have * 1000 < advised.milli_cpu:
        field = "reservedSystemCPUs" if view.config.reserved_system_cpus else "kubeReserved[cpu]"
        message = f"{count_cpus(have)} reserved, {cpus_by} {cpus_text(advised.milli_cpu)} of such a machine"
        yield Problem(field, message, fix)
    kept = _memory(view)
    if view.binds_memory and kept < advised.total_memory:
        message = (
            f"{bytes_text(kept)} of memory reserved, with evictionHard; {memory_by} "
            f"{bytes_text(advised.total_memory)} for {pods} pods: the system can run out of it before any "
            "pod is at its limit"
        )
        yield Problem("kubeReserved[memory]", message, fix)


def _memory(view: NodeView) -> int:
    return view.reservation.get("memory", Quantity.of(0)).value()


def _on_device_node(subject: NodeSubject) -> Iterator[Problem]:
    view = subject.view
    if view is None or not view.pins_cpus:
        return
    site = site_of(view.machine, view.devices)
    spare = {node: cpus & ~view.reserved for node, cpus in view.topology.numa_nodes.items()}
    fewest = min(site.devices, key=lambda node: (site.devices[node], -node))
    for node, cpus in view.topology.numa_nodes.items():
        reserved = cpus & view.reserved
        if reserved and site.devices[node] > site.devices[fewest] and spare[fewest]:
            yield Problem(
                "reservedSystemCPUs" if view.config.reserved_system_cpus else "kubeReserved[cpu]",
                f"CPUs {format_bits(reserved)} are reserved on NUMA node {node}, which has "
                f"{site.devices[node]} devices; node {fewest} has {site.devices[fewest]}",
                f"reserve on NUMA node {fewest}: podslice reserve --placement device-free",
            )


RULES: tuple[Rule[NodeSubject], ...] = (
    Rule(
        "PS414",
        "reservation-below-advice",
        INFO,
        "Less is reserved than providers reserve",
        "A system that exceeds its reservation takes from pods, and with the static policies pods have whole CPUs and "
        "memory of NUMA nodes. The advice is GKE's for CPUs and EKS' for memory, which grows with the number of "
        "pods, or the formula of the policy's section `reservation` (docs/reserve.md).",
        _below_advice,
        MACHINE,
    ),
    Rule(
        "PS415",
        "reservation-on-device-node",
        INFO,
        "CPUs are reserved on a NUMA node with devices",
        "A pod that is aligned with a device needs CPUs of the device's NUMA node. It can never have those that are "
        "reserved there, while another node has fewer devices.",
        _on_device_node,
        MACHINE,
    ),
)
