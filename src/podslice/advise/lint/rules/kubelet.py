"""Rules about a kubelet's configuration, alone and on its machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from podslice.advise.lint.model import CONFIG, ERROR, INFO, MACHINE, WARNING, Problem, Rule, count_cpus
from podslice.advise.lint.subject import NodeSubject
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy_options import (
    POLICIES,
    OptionError,
    parse_topology_options,
    refuse_options_of_none_policy,
    refuse_sockets_on_one_node,
)
from podslice.config.without_effect import settings_without_effect
from podslice.values.cpuset import Bits, CPUSetError, format_bits, parse_bits, union
from podslice.values.errors import StartError, did_you_mean
from podslice.values.gate_table import gate_states
from podslice.values.golang import quote
from podslice.values.quantity import ZERO, Quantity, QuantityError
from podslice.values.releases.table import RELEASES

_STAGE_FIELDS = {
    "reservedSystemCPUs": "reservedSystemCPUs",
    "kubeReserved": "kubeReserved",
    "systemReserved": "systemReserved",
    "evictionHard": "evictionHard",
    "topologyManager": "topologyManagerPolicy",
    "cpuManager": "cpuManagerPolicy",
    "memoryManager": "reservedMemory",
    "nodeAllocatable": "kubeReserved",
    "featureGates": "featureGates",
}
_KIND_FIELDS = {"other-platform": "memoryManagerPolicy"}
"""Fields of errors that are about another one than the rest of their stage."""
_GOING = {"": ("GA", INFO), "DEPRECATED": ("deprecated", WARNING)}
_OFTEN_WRITTEN_OUT = ("cpuManagerReconcilePeriod", "cpuCFSQuotaPeriod", "memoryThrottlingFactor")
_STAGE_FIXES = {
    "reservedSystemCPUs": "name CPUs that are online on this machine",
    "cpuManager": "correct the CPU manager's policy, options or reservation as the message says",
    "topologyManager": "choose another Topology Manager policy or option for this machine",
}


def _invalid(subject: NodeSubject) -> Iterator[Problem]:
    for undecoded in subject.undecoded:
        message = f"the kubelet refuses to start: {undecoded.problem}"
        yield Problem(undecoded.path, message, undecoded.remedy or "correct the field as the message says")
    for field, value, policies in (
        ("cpuManagerPolicy", subject.config.cpu_manager_policy, ("none", "static")),
        ("memoryManagerPolicy", subject.config.memory_manager_policy, ("None", "Static", "BestEffort")),
    ):
        # Without the gate of older releases the Memory Manager reads no policy.
        if value not in policies and (field == "cpuManagerPolicy" or subject.gates["MemoryManager"]):
            # Found by the managers themselves, not when the file is loaded; which machine it is does not matter.
            fix = f"{field} is {policies[0]} or {policies[1]}"
            yield Problem(field, f"the kubelet refuses to start: unknown policy: {quote(value)}", fix)
    for error in subject.errors:
        yield Problem(
            error.field, f"the kubelet refuses to start: {error.text}", "correct the field as the message says"
        )
    for path, unreadable in subject.unreadable_amounts:
        fix = "reserve cpu, memory, ephemeral-storage or pid, each with an amount from 0 such as 500m or 1Gi"
        yield Problem(path, f"the kubelet refuses to start: {unreadable.message}", fix)
    threshold = subject.threshold_error
    if threshold is not None:
        where = f"{threshold.field}[{threshold.signal}]"
        yield Problem(where, f"the kubelet refuses to start: {threshold}", threshold.remedy)


def _gate_problems(subject: NodeSubject) -> Iterator[Problem]:
    alone = [(name, error) for name in subject.config.feature_gates if (error := subject.refusal_of_gate(name))]
    for name, error in alone:
        yield Problem(f"featureGates[{name}]", f"the kubelet refuses to start: {error}", error.hint or "remove it")
    # What is left is about several gates at once: one needs another.
    if subject.gate_error and not alone:
        fix = subject.gate_error.hint or "set the gates to agree, or drop one"
        yield Problem("featureGates", f"the kubelet refuses to start: {subject.gate_error}", fix)
    minor = subject.release.minor
    states = gate_states(minor)
    # Gates that the kubelet accepts today: those that it will drop are worth a word.
    for name in subject.config.feature_gates:
        if name in states and states[name].stage in _GOING and name not in dict(alone):
            word, severity = _GOING[states[name].stage]
            # A gate that is as it would be without the setting is not relied upon.
            if subject.config.feature_gates[name] == states[name].default:
                severity = INFO
            gone = next((later for later in RELEASES if later > minor and name not in gate_states(later)), None)
            end = f"Kubernetes 1.{gone} has it no longer" if gone else "it will be removed in a future release"
            yield Problem(f"featureGates[{name}]", f"{name} is a {word} feature gate: {end}", "remove it", severity)


def _option_problems(subject: NodeSubject) -> Iterator[Problem]:
    config = subject.config
    if config.cpu_manager_policy == "none":
        try:
            refuse_options_of_none_policy(config.cpu_manager_policy_options)
        except OptionError as error:
            yield Problem(
                "cpuManagerPolicyOptions",
                f"the kubelet refuses to start: {error}",
                "set cpuManagerPolicy: static or remove the options",
            )
    # The kubelet parses options only of a policy that is on.
    elif subject.option_error and subject.static_cpus:
        yield Problem(
            "cpuManagerPolicyOptions",
            f"the kubelet refuses to start: {subject.option_error}",
            f"{subject.option_error.maturity.lower()} options need featureGates {subject.option_error.gate}: true"
            if subject.option_error.maturity
            else _option_hint(subject, "cpu_options", config.cpu_manager_policy_options),
        )
    elif subject.static_cpus:
        try:
            refuse_sockets_on_one_node(subject.options, config.topology_manager_policy)
        except OptionError as error:
            fix = "remove the option, or choose another topologyManagerPolicy"
            path = "cpuManagerPolicyOptions[align-by-socket]"
            yield Problem(path, f"the kubelet refuses to start: {error}", fix)
    if config.aligns:
        try:
            parse_topology_options(config.topology_manager_policy_options, subject.gates, subject.release)
        except StartError as error:
            fix = error.remedy or _option_hint(subject, "topology_options", config.topology_manager_policy_options)
            yield Problem("topologyManagerPolicyOptions", f"the kubelet refuses to start: {error}", fix)


def _option_hint(subject: NodeSubject, table: str, options: Mapping[str, str]) -> str:
    """Return what to do about an option that the release does not know, or about its value."""
    known = getattr(subject.release, table)
    unknown = min((name for name in options if name not in known), default=None)
    if unknown is None:
        return "correct the option as the message says"
    later = next((minor for minor, release in sorted(RELEASES.items()) if unknown in getattr(release, table)), None)
    return f"remove it: Kubernetes 1.{later} has it" if later else did_you_mean(unknown, known, "remove it")


def _static_without_reservation(subject: NodeSubject) -> Iterator[Problem]:
    config = subject.config
    # An amount that cannot be read is an error of its own.
    if any(path.endswith("[cpu]") for path, _ in subject.unreadable_amounts):
        return
    if subject.static_cpus and not config.reserved_system_cpus and _cpu_reservation(config).is_zero():
        yield Problem(
            "cpuManagerPolicy",
            "the static CPU manager needs reserved CPUs and none are reserved: the kubelet refuses to start",
            "set reservedSystemCPUs, or kubeReserved.cpu or systemReserved.cpu above 0",
        )


def _cpu_reservation(config: KubeletConfig) -> Quantity:
    total = ZERO
    for reserved in (config.kube_reserved, config.system_reserved):
        try:
            total = total.add(Quantity.parse(reserved.get("cpu", "0")))
        except QuantityError:
            continue
    return total


def _fractional_reservation(subject: NodeSubject) -> Iterator[Problem]:
    config = subject.config
    reserved = _cpu_reservation(config)
    milli = reserved.milli_value()
    # The policy rounds up, node allocatable does not.
    if subject.static_cpus and not config.reserved_system_cpus and milli % 1000:
        whole = -(-milli // 1000)
        yield Problem(
            "kubeReserved[cpu]" if "cpu" in config.kube_reserved else "systemReserved[cpu]",
            f"{milli}m CPU are reserved: the static CPU manager keeps {whole} whole CPUs back, the node reports only "
            f"{milli}m less to the scheduler, so {1000 * whole - milli}m of its allocatable CPU can never be exclusive",
            f"reserve {count_cpus(whole)}",
        )


def _reservation_by_number(subject: NodeSubject) -> Iterator[Problem]:
    config = subject.config
    if not config.reserved_system_cpus:
        return
    try:
        count = parse_bits(config.reserved_system_cpus).bit_count()
    except CPUSetError:
        return
    by_number = _cpu_reservation(config)
    # An equal number is harmless: it says the same in two places.
    if not by_number.is_zero() and by_number != Quantity.of(count):
        field = "kubeReserved[cpu]" if "cpu" in config.kube_reserved else "systemReserved[cpu]"
        yield Problem(
            field,
            f"reservedSystemCPUs names {count} CPUs and overrules the {by_number} CPUs of kubeReserved and "
            "systemReserved",
            "remove the cpu of kubeReserved and systemReserved",
        )


def _alignment_without_managers(subject: NodeSubject) -> Iterator[Problem]:
    config = subject.config
    known = config.topology_manager_policy in POLICIES
    if known and config.aligns and config.cpu_manager_policy == "none" and config.memory_manager_policy == "None":
        yield Problem(
            "topologyManagerPolicy",
            f"{config.topology_manager_policy} aligns only devices: cpuManagerPolicy is none and memoryManagerPolicy "
            "is None, so CPUs and memory give no hints",
            "set cpuManagerPolicy: static (and memoryManagerPolicy: Static)",
        )


def _settings_without_effect(subject: NodeSubject) -> Iterator[Problem]:
    topology = None if subject.view is None else subject.view.topology
    for one in settings_without_effect(subject.config, subject.gates, topology):
        # The common file of a pool does no harm, nor do periods that are often written out.
        is_harmless = one.by_machine or one.field.startswith("featureGates") or one.field in _OFTEN_WRITTEN_OUT
        yield Problem(one.field, one.sentence, one.fix, INFO if is_harmless else WARNING)


def _strict_reservation(subject: NodeSubject) -> Iterator[Problem]:
    if not subject.options.strict_cpu_reservation:
        return
    how_many = "all CPUs that are not reserved"
    if subject.view is not None:
        how_many = f"all {subject.view.assignable.bit_count()} CPUs that are not reserved"
    yield Problem(
        "cpuManagerPolicyOptions[strict-cpu-reservation]",
        f"strict-cpu-reservation keeps the reserved CPUs out of the shared pool, and exclusive containers can take "
        f"{how_many}: Burstable and BestEffort pods then have no CPU to run on",
        "keep some CPUs from Guaranteed pods: a quota on them, or a higher kubeReserved.cpu instead of this option",
    )


def _unknown_fields(subject: NodeSubject) -> Iterator[Problem]:
    for field in subject.unknown_fields:
        fix = field.remedy or "correct the name or remove the field"
        yield Problem(field.name, str(field), fix)


def _would_not_start(subject: NodeSubject) -> Iterator[Problem]:
    error = subject.start_error
    if error is not None:
        fix = error.remedy or _STAGE_FIXES.get(error.stage, "correct the field as the message says")
        field = _KIND_FIELDS.get(error.kind.code) or _STAGE_FIELDS.get(error.stage, "")
        where = "" if subject.machine is None else " on this machine"
        yield Problem(field, f"the kubelet refuses to start{where}: {error.message}", fix)


def _splits_cores(subject: NodeSubject) -> Iterator[Problem]:
    view = subject.view
    if view is None or not view.pins_cpus:
        return
    reserved, topology = view.reserved, view.topology
    split = [cpus for cpus in topology.cores.values() if cpus & reserved and cpus & ~reserved]
    if not split:
        return
    others = union(split) & ~reserved
    # Without an explicit list the kubelet chose these CPUs itself, by number.
    explicit = bool(subject.config.reserved_system_cpus)
    effect = (
        f"full-pcpus-only can never give away CPUs {format_bits(others)}"
        if subject.options.full_pcpus_only
        else f"exclusive CPUs {format_bits(others)} share their core with system daemons"
    )
    yield Problem(
        "reservedSystemCPUs" if explicit else "kubeReserved[cpu]",
        f"the reserved CPUs {format_bits(reserved)} hold only part of {len(split)} physical cores: {effect}",
        _whole_cores(subject, reserved | others),
    )


def _whole_cores(subject: NodeSubject, cpus: Bits) -> str:
    """Return the setting that reserves these CPUs, where a kubelet was seen to start with it."""
    config = msgspec.structs.replace(subject.config, reserved_system_cpus=format_bits(cpus))
    other = NodeSubject(
        config, subject.machine, profile=subject.profile, devices=subject.devices, policy=subject.policy
    )
    if other.errors or other.start_error is not None:
        return "reserve CPUs of whole cores"
    return f"set reservedSystemCPUs: {format_bits(cpus)}"


def _isolated_reservation(subject: NodeSubject) -> Iterator[Problem]:
    view = subject.view
    if view is None or subject.machine is None or not view.pins_cpus:
        return
    both = view.reserved & subject.machine.isolated.bits
    if both:
        yield Problem(
            "reservedSystemCPUs",
            f"CPUs {format_bits(both)} are reserved for the system but the kernel isolates them (isolcpus): its "
            "scheduler places no daemon there by itself",
            "reserve CPUs that the kernel does not isolate",
        )


RULES: tuple[Rule[NodeSubject], ...] = (
    Rule(
        "PS401",
        "invalid-configuration",
        ERROR,
        "The configuration is invalid",
        "The kubelet decodes every field by its type, then validates the values, before anything else, and exits with "
        "these errors. A little later it parses all eviction thresholds and reserved amounts, and its managers refuse "
        "policies that they do not know.",
        _invalid,
        CONFIG,
        ("PS402",),
    ),
    Rule(
        "PS402",
        "kubelet-would-not-start",
        ERROR,
        "The kubelet would not start",
        "The managers are really started on the machine: reservations against capacity, reservedMemory against "
        "kubeReserved + systemReserved + evictionHard, policy options against the topology. The message is the "
        "kubelet's own. Without a machine only reservedMemory is compared, unless a threshold is a percentage "
        "or a platform reserves memory itself.",
        _would_not_start,
        CONFIG,
    ),
    Rule(
        "PS403",
        "reserved-cpus-split-cores",
        WARNING,
        "Reserved CPUs split physical cores",
        "When only one thread of a core is reserved, system daemons and an exclusive container share that core's "
        "caches and execution units. With full-pcpus-only the other thread is lost for exclusive use.",
        _splits_cores,
        MACHINE,
    ),
    Rule(
        "PS404",
        "strict-reservation-empties-pool",
        WARNING,
        "Strict reservation can empty the shared pool",
        "With strict-cpu-reservation the shared pool is what is neither reserved nor exclusive. Guaranteed pods can "
        "own all of that, and v1.36.2 lets them: every other pod then has an empty CPU set.",
        _strict_reservation,
        CONFIG,
    ),
    Rule(
        "PS405",
        "policy-option-refused",
        ERROR,
        "A policy option is refused",
        "An unknown option, an alpha option without its feature gate, options that exclude each other or the policy "
        "of the Topology Manager, or options for a policy that takes none: the kubelet exits.",
        _option_problems,
        CONFIG,
        ("PS402",),
    ),
    Rule(
        "PS406",
        "feature-gate",
        ERROR,
        "A feature gate is refused, or will go",
        "A gate that no component of v1.36.2 knows, that is locked, or that depends on a gate that is off keeps the "
        "kubelet from starting. Gates that are generally available (info) or deprecated (a warning) will be removed.",
        _gate_problems,
        CONFIG,
        ("PS402",),
        others=(INFO, WARNING),
    ),
    Rule(
        "PS407",
        "static-without-reservation",
        ERROR,
        "The static CPU manager without reserved CPUs",
        "The static policy keeps some CPUs for the shared pool and insists on a reservation of more than 0.",
        _static_without_reservation,
        CONFIG,
        ("PS402",),
    ),
    Rule(
        "PS408",
        "fractional-reservation",
        INFO,
        "A fractional CPU reservation",
        "The static CPU manager rounds the reservation up to whole CPUs, node allocatable does not. The scheduler may "
        "send a Guaranteed pod for which the node has no whole CPU left.",
        _fractional_reservation,
        CONFIG,
    ),
    Rule(
        "PS409",
        "alignment-without-managers",
        INFO,
        "Topology alignment without managers to align",
        "The Topology Manager merges the hints of the CPU, Memory and Device Managers. With both policies off only "
        "devices with NUMA information take part.",
        _alignment_without_managers,
        CONFIG,
    ),
    Rule(
        "PS410",
        "overruled-reservation",
        WARNING,
        "reservedSystemCPUs overrules the reservation by number",
        "When reservedSystemCPUs is set, the cpu of kubeReserved and systemReserved is not read; a different number "
        "there misleads.",
        _reservation_by_number,
        CONFIG,
    ),
    Rule(
        "PS411",
        "unknown-field",
        WARNING,
        "An unknown field",
        "The kubelet's strict decoding refuses unknown fields, older decoding ignores them; in neither case does the "
        "setting do what it says.",
        _unknown_fields,
        CONFIG,
    ),
    Rule(
        "PS412",
        "reserved-cpus-isolated",
        WARNING,
        "Reserved CPUs are isolated by the kernel",
        "isolcpus takes CPUs away from the kernel's scheduler. System daemons that are meant to run on the reserved "
        "CPUs stay on one of them or run elsewhere.",
        _isolated_reservation,
        MACHINE,
    ),
    Rule(
        "PS417",
        "option-without-effect",
        WARNING,
        "A setting has no effect beside the others",
        "Scope and options of the Topology Manager, and align-by-socket, count only where the Topology Manager has a "
        "policy; reservedMemory only with the static Memory Manager; cgroups of reservations only where "
        "enforceNodeAllocatable names them. single-numa-node leaves prefer-closest-numa-nodes and "
        "distribute-cpus-across-numa nothing to do. The kubelet starts and says nothing. It is a note for gates, and "
        "for options that have no effect on this machine only: full-pcpus-only without SMT, "
        "distribute-cpus-across-numa on one NUMA node, prefer-closest-numa-nodes on two, "
        "prefer-align-cpus-by-uncorecache where no NUMA node has several L3 caches, max-allowable-numa-nodes on 8 "
        "and fewer.",
        _settings_without_effect,
        CONFIG,
        others=(INFO,),
    ),
)
