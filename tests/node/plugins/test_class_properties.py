"""Properties of CPU classes over drawn machines, classes and lives of nodes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from podslice import InputError, KubeletConfig, Node, Pod, PodslicePolicy, StartError, without_cpus
from podslice.advise.defrag.plan import apply_move, defragment
from podslice.cli.options.machine import load_named_machine
from podslice.config.policy import ClassMatch, CPUClass, Defragmentation, ExclusiveResize, Hotplug
from podslice.machine.gallery import gallery_names
from podslice.machine.model import cpu_topology
from podslice.values.cpuset import CPUSet, bits_of, format_bits, ids_of, parse_bits, union
from tests.node.plugins.test_classes import HYBRID, E, P, node, pod

MATCHES = st.one_of(
    st.builds(lambda kind: ClassMatch(core_type=kind), st.sampled_from(["performance", "efficiency", "odd"])),
    st.builds(lambda nodes: ClassMatch(numa_nodes=tuple(nodes)), st.lists(st.integers(0, 3), max_size=2)),
    st.builds(lambda one, other: ClassMatch(isolated=one, nohz_full=other), st.booleans(), st.none() | st.booleans()),
    st.builds(lambda khz: ClassMatch(max_frequency_at_least=khz), st.integers(0, 6_000_000)),
    st.builds(lambda ids: ClassMatch(cpus=format_bits(bits_of(ids))), st.sets(st.integers(0, 3), min_size=1)),
    st.just(ClassMatch()),
)
CLASSES = st.lists(MATCHES, max_size=5).map(
    lambda found: tuple(CPUClass(f"c{place}", match, min_shared=place) for place, match in enumerate(found))
)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(gallery_names()), CLASSES, st.sets(st.integers(0, 7), max_size=4))
def test_classes_are_a_partition(name: str, classes: tuple[CPUClass, ...], isolated: set[int]) -> None:
    """Whatever classes match: every CPU of the machine has exactly one, and what can be owned is of the class."""
    machine = replace(load_named_machine(name, "--machine"), isolated=CPUSet(isolated))
    topology = cpu_topology(machine)
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus=str(max(topology.numa_of)))
    try:
        made = Node(machine, config, policy=PodslicePolicy(cpu_classes=(*classes, CPUClass("last"))))
    except StartError as error:
        assert "cpuClasses" in error.message  # noqa: PT017  (a list of CPUs beyond the machine)
        return
    found = made.view.cpu_classes
    assert found is not None
    assert sum(one.bit_count() for one in found.cpus.values()) == topology.num_cpus
    assert union(found.cpus.values()) == topology.all_cpus
    assert all(not own & ~found.cpus[one] for one, own in found.ownable.items())


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "admit", "resize", "remove", "move", "offline", "online"]),
        st.integers(0, 7),
        st.integers(1, 9),
        st.sampled_from(["performance!", "efficiency!", "performance", ""]),
    ),
    min_size=2,
    max_size=12,
)
LIVES = PodslicePolicy(
    resize=ExclusiveResize(exclusive=True, below_baseline="allow"),
    defrag=Defragmentation(movable="all"),
    hotplug=Hotplug(lost_cpus="replace"),
)


class ClassLife:
    """A hybrid node, with the requested classes and sizes of the pods on it."""

    def __init__(self, policy: str) -> None:
        self.node = node((), (P, E), policy=LIVES, topology_manager_policy=policy)
        self.pods: dict[str, tuple[int, str]] = {}
        self.machine_changed = False

    def pod(self, name: str, count: int, requested: str) -> Pod:
        made: Pod = pod(name, str(count), annotation=requested)
        return replace(made, metadata=replace(made.metadata, uid=name))

    def step(self, what: str, number: int, count: int, requested: str) -> None:
        name = f"p{number}"
        if what == "admit" and name not in self.pods:
            if self.node.admit(self.pod(name, count, requested)).admitted:
                self.pods[name] = count, requested
        elif what == "resize" and name in self.pods:
            of = self.pod(name, count, self.pods[name][1])
            if self.node.resize(of).outcome == "Allocated":
                self.pods[name] = count, self.pods[name][1]
        elif what == "remove" and name in self.pods:
            self.node.remove(name)
            del self.pods[name]
        elif what == "move":
            plan = defragment(self.node, self.pod("wants", count, requested), most=2, limit=50)
            for move in plan.moves:
                apply_move(self.node, move)
        elif what in ("offline", "online"):
            self.machine_changed = True
            lost = 0b11 << 2 * number if what == "offline" else 0
            try:
                self.node.change_machine(without_cpus(HYBRID, lost & ~parse_bits("16-17")))
            except (StartError, InputError):
                return

    def check(self) -> None:
        view = self.node.view
        classes: Any = view.cpu_classes
        for name, (_, requested) in self.pods.items():
            held = view.owners.get(name, {}).get("c", 0) & ~view.offline
            if requested.endswith("!"):
                here = parse_bits("0-15") if requested == "performance!" else parse_bits("16-23")
                assert not held & ~here, (name, requested, ids_of(held))
        if not self.machine_changed:
            assert (view.shared & classes.cpus["performance"]).bit_count() >= 2


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(["none", "best-effort", "single-numa-node"]), STEPS)
def test_required_wishes_are_never_violated(policy: str, steps: list[tuple[str, int, int, str]]) -> None:
    """Whatever comes, grows, shrinks, moves or loses CPUs that are replaced: who requires a class has CPUs of nothing
    else, and as many CPUs as `minShared` says stay shared until the machine itself changes."""
    life = ClassLife(policy)
    for step in steps:
        life.step(*step)
        life.check()
