"""CPU classes of one node: their CPUs, and the containers that may use them (docs/policy.md).

Classes are disjoint and cover all CPUs. They are computed once for a machine; what is owned and shared by now is passed
with each call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from podslice.api.pod.claim_holder import claims_cpu_class, holder_cpu_class
from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.config.annotations import requested_classes
from podslice.config.policy import IMPLICIT_CLASS, AssignRule, ClassMatch, CPUClass, PodslicePolicy
from podslice.machine.model import CPUTopology, Machine
from podslice.node.cpu.state import MadeUnder
from podslice.node.plugins.claim_parts import claim_parts, claimable_cpus
from podslice.values.cpuset import Bits, CPUSetError, bits_of, format_bits, parse_bits, union
from podslice.values.errors import StartError, StartKind

OTHERS: Final = "default"
"""The class of CPUs that match no other."""
_STAGE = "policy"
_TWICE = StartKind("class-twice", "cpuClasses names {name} twice", "name it once")
_UNKNOWN = StartKind("unknown-class", "{path} names {name}, which is not a CPU class", "use one of: {known}")
_NO_CPUS = StartKind("class-cpus", "{path} {problem}", "list CPUs of this machine: {cpus}")
_RESERVED = StartKind(
    "claim-cpus-reserved", "claims.cpus names CPUs {cpus}, which are reserved for the system", "leave them out"
)
_LONG = StartKind(
    "class-too-long",
    "cpuClasses names {name}, which is too long for a device of claims",
    "use at most {most} characters",
)
_LONGEST_WITH_CLAIMS = 40
"""A device is called `podslice-numa-NUMBER-CLASS`, in 63 characters."""


class Wish(NamedTuple):
    """The classes that a container requests, best first, and then those that these overflow to; `required`: no other
    class will do."""

    classes: tuple[str, ...]
    required: bool = False
    overflow: tuple[str, ...] = ()

    @classmethod
    def read(cls, words: Sequence[str]) -> Wish:
        """Return the wish of recorded `words`; they do not tell classes from overflow."""
        names = tuple(word.removesuffix("!") for word in words)
        return cls(names, required=any(word.endswith("!") for word in words))

    @property
    def words(self) -> tuple[str, ...]:
        """All classes that it may get, best first, `NAME!` where no other will do."""
        mark = "!" if self.required else ""
        return tuple(f"{name}{mark}" for name in (*self.classes, *self.overflow))


class CPUClasses:
    """The classes of a node. `cpus` by class; `ownable`: those of them that containers may own. `parts`: the parts that
    devices of claims represent, by name, and `grantable` these beside `ownable`. `sees_pods`: rules read names and
    labels of pods."""

    def __init__(
        self,
        policy: PodslicePolicy,
        machine: Machine,
        topology: CPUTopology,
        *,
        reserved: Bits,
        strict: bool,
        whole_cores: bool = False,
    ) -> None:
        self.policy = policy
        self.isolated = machine.isolated.bits
        configured = list(_all_classes(policy.cpu_classes, self.isolated))
        self._classes = {one.name: one for one in (*_claim_classes(policy, topology, reserved), *configured)}
        self.cpus = _assign_cpus(policy, self._classes.values(), machine, topology)
        known = {*self._classes, *(name for name in (IMPLICIT_CLASS, OTHERS))}
        _check_names(policy, known)
        self.ownable = {
            name: cpus & ~_always_shared(self._classes[name], cpus, topology, reserved, strict=strict)
            for name, cpus in self.cpus.items()
            if self._classes[name].exclusive != "never"
        }
        self.kinds = _assign_cpus(policy, configured, machine, topology) if policy.cpu_classes else {}
        """CPUs of each configured class, those for claims included."""
        self.claimable = 0
        if policy.claims is not None:
            cpus = union(self.cpus[claims_cpu_class(numa)] for numa in topology.numa_nodes)
            self.claimable = claimable_cpus(cpus, topology, reserved=reserved, strict=strict, whole_cores=whole_cores)
        self.parts = claim_parts(machine, topology, self.claimable, self.kinds) if self.claimable else {}
        self.grantable = self.ownable | {claims_cpu_class(name): part.cpus for name, part in self.parts.items()}
        self._exclusive = Wish(tuple(name for name, one in self._classes.items() if one.exclusive == "always"))
        self.open_to_all = Wish(tuple(name for name, one in self._classes.items() if one.shared))
        self.sees_pods = any(map(_reads_pods, policy.assign)) or policy.annotations.namespaces != ("*",)

    # Requested classes

    def wish(self, pod: AdmissionPod, container: AdmissionContainer | None, *, exclusive: bool) -> Wish:
        """Return the classes that a container, or the pod as a whole (None), requests: by its annotation, else by the
        first rule that applies, else all that are open to every container."""
        if pod.holds_claim:
            return Wish((holder_cpu_class("" if container is None else container.name),), required=True)
        asked = requested_classes(self.policy, pod.spec).get("" if container is None else container.name)
        if asked is not None:
            return self._with_overflow((asked,))
        for rule in self.policy.assign:
            if _applies_to(rule, pod, container, exclusive=exclusive):
                return self._with_overflow(rule.classes)
        return self._exclusive if exclusive else self.open_to_all

    def to_own(
        self, pod: AdmissionPod, container: AdmissionContainer | None, made_under: MadeUnder, held: Bits
    ) -> Wish:
        """Return the wish for own CPUs: the one under which the container got those it has, else its present one;
        adapted to CPUs that it holds as in `kept`."""
        words = made_under.get(pod.uid, {}).get("" if container is None else container.name)
        wish = self.wish(pod, container, exclusive=True) if words is None else Wish.read(words)
        return self.kept(wish, held)

    def to_note(self, pod: AdmissionPod, container: AdmissionContainer | None, held: Bits) -> tuple[str, ...]:
        """Return the words to record for a container that got CPUs; none where the policy has no classes but those of
        claims."""
        if not self.policy.cpu_classes or pod.holds_claim:
            return ()
        return self.to_own(pod, container, {}, held).words

    def _with_overflow(self, names: Sequence[str]) -> Wish:
        """Return a wish, with the classes to which it overflows unless it is required."""
        required = any(name.endswith("!") for name in names)
        wanted = tuple(dict.fromkeys(name.removesuffix("!") for name in names))
        found = list(wanted)
        for name in () if required else found:
            one = self._classes.get(name)
            found += [other for other in (one.overflow if one else ()) if other not in found]
        return Wish(wanted, required, tuple(found[len(wanted) :]))

    # CPUs

    def kept(self, wish: Wish, held: Bits) -> Wish:
        """Return the wish of a container that holds CPUs: where none of them can be of its classes, the rules have
        changed since its admission, and it stays in the classes that it is in."""
        if not held or held & (self.own(wish) | self.all_of(wish)):
            return wish
        return Wish(tuple(name for name, cpus in self.cpus.items() if cpus & held))

    def own(self, wish: Wish) -> Bits:
        """Return the CPUs that a container with this wish may own."""
        return union(self.grantable.get(name, 0) for name in (*wish.classes, *wish.overflow))

    def all_of(self, wish: Wish) -> Bits:
        """Return all CPUs of the classes."""
        return union(self.cpus.get(name, 0) for name in wish.classes)

    def shared(self, wish: Wish, default: Bits) -> Bits:
        """Return the part of DEFAULT that a container with this wish shares: its classes together, where they have
        nothing the first that they overflow to, else the CPUs that are not isolated from the kernel's scheduler, else
        all; never empty unless DEFAULT is."""
        pool = union(self._sharable(name) for name in wish.classes) & default
        if pool:
            return pool
        for name in wish.overflow:
            if self._sharable(name) & default:
                return self._sharable(name) & default
        # The kernel does not balance load on isolated CPUs, so shared processes would stay where they started.
        return default & ~self.isolated or default

    def falls_back(self, wish: Wish, default: Bits) -> bool:
        """Whether none of the requested classes has CPUs that are shared now, so that the container runs on others."""
        return not any(self._sharable(name) & default for name in wish.classes)

    def _sharable(self, name: str) -> Bits:
        one = self._classes.get(name)
        return self.cpus.get(name, 0) if one is not None and one.shared else 0

    def name_of(self, cpus: Bits) -> str:
        """Return the classes that some CPUs are of, with commas."""
        return ",".join(name for name, members in self.cpus.items() if members & cpus)


def classes_for(
    policy: PodslicePolicy,
    machine: Machine,
    topology: CPUTopology,
    *,
    reserved: Bits,
    strict: bool,
    whole_cores: bool = False,
) -> CPUClasses | None:
    """Return the classes of a node, None where its policy has none. `whole_cores`: claims take cores with all their
    threads. Raises `StartError`."""
    if not policy.cpu_classes and policy.claims is None:
        return None
    return CPUClasses(policy, machine, topology, reserved=reserved, strict=strict, whole_cores=whole_cores)


def _all_classes(configured: Sequence[CPUClass], isolated: Bits) -> Iterator[CPUClass]:
    """Yield the configured classes, before them the implicit one, after them the one for the rest."""
    names = [one.name for one in configured]
    for name in names:
        if names.count(name) > 1:
            raise StartError(_STAGE, _TWICE, name=name)
    # Isolated CPUs that no class matches get one of their own, which is never shared.
    if names and isolated and IMPLICIT_CLASS not in names and not any(one.match.isolated for one in configured):
        yield CPUClass(IMPLICIT_CLASS, ClassMatch(isolated=True), exclusive="onRequest", shared=False)
    yield from configured
    if OTHERS not in names:
        yield CPUClass(OTHERS)


def _claim_classes(policy: PodslicePolicy, topology: CPUTopology, reserved: Bits) -> Iterator[CPUClass]:
    """Yield a class for each NUMA node with CPUs for claims, before all others. Raises `StartError`."""
    if policy.claims is None:
        return
    try:
        named = parse_bits(policy.claims.cpus) & reserved
    except CPUSetError:
        named = 0
    if named:
        raise StartError(_STAGE, _RESERVED, cpus=format_bits(named))
    for one in policy.cpu_classes:
        if len(one.name) > _LONGEST_WITH_CLAIMS:
            raise StartError(_STAGE, _LONG, name=one.name, most=_LONGEST_WITH_CLAIMS)
    for numa in topology.numa_nodes:
        match = ClassMatch(numa_nodes=(numa,), cpus=policy.claims.cpus)
        yield CPUClass(claims_cpu_class(numa), match, exclusive="onRequest")


def _assign_cpus(
    policy: PodslicePolicy, classes: Iterable[CPUClass], machine: Machine, topology: CPUTopology
) -> dict[str, Bits]:
    """Return the CPUs of each class; a CPU is of the first class that it matches."""
    left, found = topology.all_cpus, dict[str, Bits]()
    paths = {one.name: f"cpuClasses[{place}].match.cpus" for place, one in enumerate(policy.cpu_classes)}
    for one in classes:
        found[one.name] = _match_cpus(one.match, paths.get(one.name, "claims.cpus"), machine, topology) & left
        left &= ~found[one.name]
    return {name: cpus for name, cpus in found.items() if cpus or name != OTHERS}


def _match_cpus(match: ClassMatch, path: str, machine: Machine, topology: CPUTopology) -> Bits:
    """Return the CPUs that fulfil all conditions of a class. Raises `StartError`."""
    cpus = topology.all_cpus
    for wanted, members in (
        (match.isolated, machine.isolated.bits),
        (match.nohz_full, machine.nohz_full.bits),
        (match.rcu_nocbs, machine.rcu_nocbs.bits),
    ):
        if wanted is not None:
            cpus &= members if wanted else ~members
    if match.core_type is not None:
        cpus &= union(one.cpus.bits for one in machine.core_types if one.name == match.core_type)
    if match.capacity_at_least is not None:
        cpus &= union(one.cpus.bits for one in machine.core_types if one.capacity >= match.capacity_at_least)
    if match.max_frequency_at_least is not None:
        cpus &= union(one.cpus.bits for one in machine.max_frequencies if one.khz >= match.max_frequency_at_least)
    if match.numa_nodes is not None:
        cpus &= topology.cpus_in_numa_nodes(bits_of(match.numa_nodes))
    if match.cpus is not None:
        try:
            listed = parse_bits(match.cpus)
        except CPUSetError as error:
            raise StartError(
                _STAGE, _NO_CPUS, path=path, problem=error.problem, cpus=_all_cpus_text(topology)
            ) from None
        if listed & ~topology.all_cpus & ~machine.offline.bits:
            problem = f"names {format_bits(listed & ~topology.all_cpus)}"
            raise StartError(_STAGE, _NO_CPUS, path=path, problem=problem, cpus=_all_cpus_text(topology))
        cpus &= listed
    return cpus


def _all_cpus_text(topology: CPUTopology) -> str:
    return format_bits(topology.all_cpus)


def _always_shared(one: CPUClass, cpus: Bits, topology: CPUTopology, reserved: Bits, *, strict: bool) -> Bits:
    """Return the lowest cores of a class that always stay shared; reserved CPUs count among what is shared, unless the
    reservation is strict: then no container runs on them."""
    missing, kept = one.min_shared - (0 if strict else (cpus & reserved).bit_count()), 0
    parts = [part for core in topology.cores.values() if (part := core & cpus & ~reserved)]
    # First cores, or parts of them, that do not exceed `min_shared`; only then one that does.
    for fits in (True, False):
        for part in parts:
            if missing > 0 and not part & kept and (part.bit_count() <= missing or not fits):
                kept |= part
                missing -= part.bit_count()
    return kept


def _check_names(policy: PodslicePolicy, known: set[str]) -> None:
    """Check that the policy names existing classes only. Raises `StartError`."""
    named = [(f"cpuClasses[{n}].overflow", name) for n, one in enumerate(policy.cpu_classes) for name in one.overflow]
    named += [(f"assign[{n}].classes", name.removesuffix("!")) for n, one in enumerate(policy.assign)
              for name in one.classes]  # fmt: skip
    for path, name in named:
        if name not in known:
            raise StartError(_STAGE, _UNKNOWN, path=path, name=name, known=", ".join(sorted(known)))


def _reads_pods(rule: AssignRule) -> bool:
    keys = rule.namespaces, rule.labels, rule.owner_kinds, rule.priority_classes, rule.min_priority
    return any(key is not None for key in keys)


def _applies_to(rule: AssignRule, pod: AdmissionPod, container: AdmissionContainer | None, *, exclusive: bool) -> bool:
    """Whether a rule applies to a container, or to the pod as a whole (None)."""
    metadata, spec = pod.spec.metadata, pod.spec.spec
    labels, owners = metadata.labels or {}, {owner.kind for owner in metadata.owner_references or ()}
    kind = "app"
    if container is not None and container.init:
        kind = "sidecar" if container.restartable else "init"
    return (
        (rule.namespaces is None or any(fnmatchcase(metadata.namespace or "default", one) for one in rule.namespaces))
        and (rule.labels is None or all(labels.get(key) == value for key, value in rule.labels.items()))
        and (rule.owner_kinds is None or not owners.isdisjoint(rule.owner_kinds))
        and (rule.qos is None or pod.qos in rule.qos)
        and (rule.priority_classes is None or spec.priority_class_name in rule.priority_classes)
        and (rule.min_priority is None or (spec.priority or 0) >= rule.min_priority)
        and (rule.kinds is None or kind in rule.kinds)
        and (rule.exclusive is None or rule.exclusive == exclusive)
    )


def fallback_of(classes: CPUClasses, pod: AdmissionPod, container: AdmissionContainer, default: Bits) -> str:
    """Return the first class that a sharing container requests, where it runs on CPUs of none of its classes; else
    empty."""
    wish = classes.wish(pod, container, exclusive=False)
    return wish.classes[0] if wish.classes and classes.falls_back(wish, default) else ""


def shared_cpus_of(classes: CPUClasses, pod: AdmissionPod | None, container: str, default: Bits) -> Bits:
    """Return the part of DEFAULT that a container shares; for an unknown pod the classes that are open to all."""
    if pod is None:
        return classes.shared(classes.open_to_all, default)
    found = next((one for one in pod.containers if one.name == container), None)
    return classes.shared(classes.wish(pod, found, exclusive=False), default)
