"""Random lives of a node whose pods are resized, with a kill between any two writes; every promise is checked.

The numbers are those of the properties in docs/resize.md. `History(seed, folder).play()` raises where one fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from msgspec.structs import replace

from podslice import ExclusiveResize, InputError, KubeletConfig, Machine, Node, Pod, PodslicePolicy, StartError
from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.memory_demand import container_memory, pod_memory
from podslice.api.pod.spec import ResourceRequirements, map_containers, pod_from_dict
from podslice.config.kubelet import MemoryReservation
from podslice.host.state.store import NodeStore
from podslice.machine.model import HugePages
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.checkpoints import policy_state
from podslice.node.checkpoints.names import POLICY_STATE_FILE, place_of
from podslice.node.cpu.state import CPUState
from podslice.node.decision import ResizeDecision
from podslice.node.memory.elastic import fits
from podslice.node.state import NodeState
from podslice.values.cpu_policy_options import CPU_POLICY_OPTIONS
from podslice.values.cpuset import Bits, union
from podslice.values.quantity import Quantity
from tests.node.cpu.test_resize import ALLOWED

MACHINES = tuple(
    from_synthetic(text)
    for text in (
        "pack:1 numa:2(memory=4GiB) core:2 pu:2",
        "pack:2 numa:1(memory=4GiB) core:4 pu:2",
        "pack:2 numa:1(memory=4GiB) l3:2 core:2 pu:2",
        "pack:2 numa:2(memory=3GiB) core:2 pu:2",
        "pack:1 numa:4(memory=3GiB) core:3 pu:1",
        "pack:1 numa:1(memory=8GiB) core:6 pu:2",
    )
)
SIZES = ("1", "2", "2", "2", "3", "4", "4", "5", "6", "8", "500m", "1500m")
MEMORY = ("256Mi", "512Mi", "1Gi", "1Gi", "2Gi", "3Gi", "4Gi", "5Gi")
SMALL_SIZES = ("1", "2", "2", "2", "3", "4", "500m")
SMALL_MEMORY = ("256Mi", "512Mi", "512Mi", "1Gi", "2Gi")
BUDGETS = ("3", "4", "4", "5", "6", "6", "8", "8", "10", "7500m")
POD_MEMORY = ("2Gi", "3Gi", "4Gi", "5Gi", "6Gi")
KILLED_BESIDES = 0.25
"""How often a process is killed as it writes something else than a resize."""
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
GATES = {"CPUManagerPolicyAlphaOptions": True, "CPUManagerPolicyBetaOptions": True}


class Disk:
    """File operations in memory: `files` is what a disk would hold, `log` each replacement of a file in order."""

    def __init__(self, files: Mapping[Path, bytes]) -> None:
        self.files = dict(files)
        self.log: list[tuple[Path, bytes]] = []
        self._temporary: dict[Path, bytes] = {}

    def write(self, path: Path, data: bytes) -> None:
        self._temporary[path] = data

    def rename(self, source: Path, target: Path) -> None:
        data = self._temporary.pop(source)
        self.files[target] = data
        self.log.append((target, data))

    def sync_directory(self, path: Path) -> None:
        pass


class Setting(NamedTuple):
    """The machine, configuration and policy that a node is started with."""

    machine: Machine
    config: KubeletConfig
    policy: PodslicePolicy
    predicates: bool


def draw_setting(random: Random) -> Setting:
    machine = random.choice(MACHINES)
    if random.random() < 0.1:
        nodes = tuple(replace(node, hugepages=(HugePages(2048, 256),)) for node in machine.nodes)
        machine = replace(machine, nodes=nodes)
    options = random.choice(ALLOWED)
    chosen = {
        name: "true" for name in CPU_POLICY_OPTIONS if getattr(options, name.replace("-", "_"))
    } if random.random() < 0.7 else {}  # fmt: skip
    config = KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options=chosen,
        topology_manager_policy=random.choice(POLICIES),
        topology_manager_scope=random.choice(["container", "pod", "pod"]),
        reserved_system_cpus=random.choice(["0", "0-1", "1,3"]),
        eviction_hard={},
        memory_manager_policy=random.choice(["None", "Static", "Static"]),
        system_reserved={"memory": "256Mi"},
        reserved_memory=(MemoryReservation(0, {"memory": "256Mi"}),),
        feature_gates={**GATES, "PodLevelResourceManagers": random.random() < 0.7},
    )
    resize = draw_rules(random, exclusive=random.random() < 0.92)
    return Setting(machine, config, PodslicePolicy(resize=resize), random.random() < 0.5)


def draw_rules(random: Random, *, exclusive: bool) -> ExclusiveResize:
    return ExclusiveResize(
        exclusive=exclusive,
        below_baseline=random.choice(["infeasible", "allow"]),
        eligibility_change=random.choice(["infeasible", "allow"]),
        misfit=random.choice(["deferred", "deferred", "infeasible"]),
        memory_nodes=random.choice(["sticky", "follow"]),
    )


def draw_pod(random: Random, uid: str, *, huge: bool) -> Pod:
    """One or two containers, sometimes with init containers or a budget for the pod."""

    whole = random.random() < 0.35
    sizes, memory = (SMALL_SIZES, SMALL_MEMORY) if whole else (SIZES, MEMORY)

    def container(name: str) -> dict[str, Any]:
        amounts = {"cpu": random.choice(sizes), "memory": random.choice(memory)}
        kind = random.random()
        if kind < 0.08:
            return {"name": name, "resources": {}}
        if kind < 0.16:
            return {"name": name, "resources": {"requests": amounts}}
        if huge and random.random() < 0.3:
            amounts["hugepages-2Mi"] = "64Mi"
        return {"name": name, "resources": {"requests": amounts, "limits": amounts}}

    spec: dict[str, Any] = {"containers": [container(f"c{i}") for i in range(random.choice([1, 1, 1, 2, 2, 3]))]}
    if random.random() < 0.2:
        init = container("init")
        spec["initContainers"] = [init | ({"restartPolicy": "Always"} if random.random() < 0.5 else {})]
    if whole:
        spec["containers"].append({"name": "shared", "resources": {}})
        budget = {"cpu": random.choice(BUDGETS), "memory": random.choice(POD_MEMORY)}
        spec["resources"] = {"requests": budget, "limits": budget}
    return pod_from_dict({"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": spec})


def draw_sizes(random: Random, pod: Pod) -> Pod:
    """The pod with other amounts, requests still equal to limits where they were."""
    sizes, memory = (SMALL_SIZES, SMALL_MEMORY) if pod.spec.resources else (SIZES, MEMORY)

    def change(container: Any) -> Any:
        requests, limits = container.resources.requests, container.resources.limits
        if not requests or requests != limits or random.random() < 0.25:
            return container
        amounts = dict(requests)
        if random.random() < 0.75:
            amounts["cpu"] = Quantity.parse(random.choice(sizes))
        if random.random() < 0.6:
            amounts["memory"] = Quantity.parse(random.choice(memory))
        return replace(container, resources=ResourceRequirements(amounts, amounts))

    spec = map_containers(pod.spec, change)
    if spec.resources is not None and random.random() < 0.7:
        amounts = dict(spec.resources.requests or {})
        if random.random() < 0.7:
            amounts["cpu"] = Quantity.parse(random.choice(BUDGETS))
        if random.random() < 0.5:
            amounts["memory"] = Quantity.parse(random.choice(POD_MEMORY))
        spec = replace(spec, resources=ResourceRequirements(amounts, amounts))
    kept = tuple(
        new if new.restart_policy == "Always" else old
        for new, old in zip(spec.init_containers, pod.spec.init_containers, strict=True)
    )
    return replace(pod, spec=replace(spec, init_containers=kept))


def held(state: NodeState) -> tuple[object, ...]:
    """Return all that pods hold, and their promises."""
    cpu, memory = state.cpu, state.memory
    return (
        cpu.default, cpu.assignments, cpu.pod_cpus, cpu.loans, cpu.pod_loans,
        memory.machine_state, memory.assignments, memory.pod_assignments,
    )  # fmt: skip


# P6, and what holds at any time


def check(node: Node) -> None:
    """Every CPU has one owner or is shared; each container has its size; what was promised is held; the ledgers of
    memory are what its holders have together."""
    check_cpus(node)
    if node.kubelet.manager.memory.static:
        check_memory(node)


def check_cpus(node: Node) -> None:
    cpu, elastic = node.state.cpu, node.kubelet.manager.elastic
    owned = 0
    for uid, pod in node.state.pods.items():
        sets, pod_cpus = cpu.assignments.get(uid, {}), cpu.pod_cpus.get(uid)
        long_lived = [sets[name] for name in long_lived_names(pod) if name in sets]
        assert sum(map(int.bit_count, long_lived)) == union(long_lived).bit_count()
        own = union(sets.values()) if pod_cpus is None else pod_cpus
        assert not owned & own
        owned |= own
        if pod_cpus is not None:
            assert pod_cpus.bit_count() == pod.cpus or not elastic
            assert union(sets.values()) & ~pod_cpus == 0
            assert cpu.promised_to_pod(uid) & ~pod_cpus == 0
        shares = pod.managed and node.kubelet.config.aligns_pods and not pod.cpus
        assert not (shares and sets)
        for one in pod.containers:
            if not (pod.ignored or shares) and (one.exclusive_cpus or pod_cpus is None) and not one.plain_init:
                assert (cpu.assignment(uid, one.name) or 0).bit_count() == one.exclusive_cpus
            elif pod_cpus is not None and not one.init:
                assert cpu.assignment(uid, one.name) == pod_cpus & ~union(long_lived)
            assert cpu.promised(uid, one.name) & ~(cpu.assignment(uid, one.name) or 0) == 0
    assert cpu.default & owned == 0
    strict = node.kubelet.manager.cpu.options.strict_cpu_reservation
    assert cpu.default | owned == node.topology.all_cpus & ~(node.reserved_cpus.bits if strict else 0)
    assert cpu.default or not owned


def long_lived_names(pod: AdmissionPod) -> list[str]:
    return [one.name for one in pod.containers if one.exclusive_cpus and not one.plain_init]


def check_memory(node: Node) -> None:
    memory = node.state.memory
    booked: Counter[tuple[tuple[int, ...], str]] = Counter()
    holders: Counter[int] = Counter()
    for uid, pod in node.state.pods.items():
        whole, own = memory.pod_assignments.get(uid), memory.assignments.get(uid, {})
        for block in whole or [block for blocks in own.values() for block in blocks]:
            booked[block.numa_affinity or (), block.type] += block.size
            holders.update(block.numa_affinity or ())
        if whole:
            assert fits(whole, pod_memory(pod))
            assert all(set(block.numa_affinity or ()) <= set(whole[0].numa_affinity or ())
                       for blocks in own.values() for block in blocks)  # fmt: skip
        if pod.guaranteed and not pod.ignored:
            for one in pod.containers:
                if not one.plain_init and (request := container_memory(pod, one)):
                    assert fits(own.get(one.name, ()), {k: v for k, v in request.items() if v or not whole})
    for id_, ledger in memory.machine_state.items():
        cells = tuple(sorted(ledger.cells or ()))
        assert ledger.number_of_assignments == holders[id_]
        assert all(set(cells) == set(nodes) for nodes, _ in booked if id_ in nodes)
        for name in ledger.memory_map or {}:
            tables = [(memory.machine_state[cell].memory_map or {})[name] for cell in cells]
            assert sum(table.reserved for table in tables) == booked[cells, name]
            assert all(table.free + table.reserved == table.allocatable for table in tables)


# P1, P2, P4, P5: what a granted resize does


class Promises:
    """The baselines of containers and of pod CPUs as the rules have them, kept beside the node's own ledgers."""

    def __init__(self) -> None:
        self.containers: dict[tuple[str, str], Bits] = {}
        self.pod_cpus: dict[str, Bits] = {}

    def admitted(self, state: NodeState, uid: str) -> None:
        self.forget(uid)
        for name in long_lived_names(state.pods[uid]):
            if owned := state.cpu.assignment(uid, name):
                self.containers[uid, name] = owned
        if uid in state.cpu.pod_cpus:
            self.pod_cpus[uid] = state.cpu.pod_cpus[uid]

    def forget(self, uid: str) -> None:
        self.containers = {key: cpus for key, cpus in self.containers.items() if key[0] != uid}
        self.pod_cpus.pop(uid, None)

    def resized(self, before: NodeState, after: NodeState, uid: str) -> None:
        """A resize of the pod was granted."""
        names = {*long_lived_names(before.pods[uid]), *long_lived_names(after.pods[uid])}
        for name in names:
            owns = _owns(before, uid, name), _owns(after, uid, name)
            baseline = _changed(*owns, self.containers.get((uid, name), 0))
            self.containers.pop((uid, name), None)
            if baseline:
                self.containers[uid, name] = baseline
        if uid in self.pod_cpus:
            had, has, promised = before.cpu.pod_cpus[uid], after.cpu.pod_cpus[uid], self.pod_cpus[uid]
            slices = union(_owns(after, uid, name) for name in names)
            if has.bit_count() < promised.bit_count():  # slices stay, loaned or not
                assert has & ~(promised | slices & had) == 0
                self.pod_cpus[uid] = has & promised
            else:
                self.pod_cpus[uid] = _changed(had, has, promised)

    def check(self, cpu: CPUState) -> None:
        for (uid, name), cpus in self.containers.items():
            assert cpu.promised(uid, name) == cpus
        for uid, cpus in self.pod_cpus.items():
            assert cpu.promised_to_pod(uid) == cpus


def _owns(state: NodeState, uid: str, name: str) -> Bits:
    return (state.cpu.assignment(uid, name) or 0) if name in long_lived_names(state.pods[uid]) else 0


def _changed(had: Bits, has: Bits, promised: Bits) -> Bits:
    """Return the baseline after a resize from one set to another, which must be allowed."""
    if not had or not has:
        return has
    if has.bit_count() == had.bit_count():
        assert has == had
        return promised
    if has.bit_count() > had.bit_count():
        assert had & ~has == 0
        return promised
    assert has & ~had == 0
    if has.bit_count() >= promised.bit_count():
        assert promised & ~has == 0
        return promised
    assert has & ~promised == 0
    return has


# A life


class History:
    """One node from its first pod on, in a folder that may be used again afterwards."""

    def __init__(self, seed: int, folder: Path, *, steps: int = 9) -> None:
        self.random = Random(seed)
        self.steps = steps
        self.folder = folder
        self.counts: Counter[str] = Counter()
        self.running: dict[str, Pod] = {}
        self.promises = Promises()

    def play(self) -> Counter[str]:
        """Live; how often what happened. Raises `AssertionError` where a promise was broken."""
        self.setting = draw_setting(self.random)
        self.disk = Disk({})
        try:
            self.store = self.open(self.disk, ())
        except StartError:
            return Counter({"nodes that do not start": 1})
        self.counts["histories"] += 1
        self.twin = self._other_names() if self.random.random() < 0.15 else None
        huge = bool(self.setting.machine.nodes[0].hugepages)
        for number in range(self.steps):
            action = self.random.random()
            if len(self.running) < 2 or action < (0.25 if len(self.running) < 4 else 0.08):
                self._admit(draw_pod(self.random, f"p{number}", huge=huge))
            elif action < 0.33:
                self._remove(self.random.choice(list(self.running)))
            elif action < 0.38:
                self._restart()
            elif action < 0.42:
                self._change_policy()
            else:
                self._resize(self._wish())
            check(self.store.node)
            self.promises.check(self.store.node.state.cpu)
        self._end()
        return self.counts

    def open(self, disk: Disk, running: Iterable[Pod], torn: tuple[Path, bytes] | None = None) -> NodeStore:
        """Start a new process on what the disk holds; `torn` is a file that was being written when the last one
        ended."""
        for name in ("cpu_manager_state", "memory_manager_state", POLICY_STATE_FILE):
            path = self.folder / place_of(name)
            if path in disk.files:
                path.write_bytes(disk.files[path])
            else:
                path.unlink(missing_ok=True)
        if torn is not None:
            torn[0].with_name(f".{torn[0].name}.new").write_bytes(torn[1][: len(torn[1]) // 2])
        machine, config, policy, predicates = self.setting
        return NodeStore(
            self.folder, machine, config, running=running, policy=policy, predicates=predicates, files=disk
        )

    # Steps

    def _admit(self, pod: Pod) -> None:
        before, disk = self.store.node.state, dict(self.disk.files)
        self.disk.log.clear()
        admitted = self.store.admit(pod).admitted
        self._tell_twin("admit", pod, admitted)
        self.counts["admissions" if admitted else "refused pods"] += 1
        for uid in [uid for uid in self.running if uid not in self.store.node.pods]:
            self._forget(uid)
        if not admitted:
            return
        if len(self.running) == len(before.pods) and self.random.random() < KILLED_BESIDES:
            self._kill(disk, [(tuple(self.running.values()), before)])
        self.running[pod.metadata.uid] = self.store.node.state.pods[pod.metadata.uid].spec
        self.promises.admitted(self.store.node.state, pod.metadata.uid)

    def _remove(self, uid: str) -> None:
        disk = dict(self.disk.files)
        self.disk.log.clear()
        self.store.remove(uid)
        self._tell_twin("remove", uid, True)
        self._forget(uid)
        self.counts["removals"] += 1
        if self.random.random() < KILLED_BESIDES:
            self._kill(disk, [(tuple(self.running.values()), self.store.node.state)])
        self._granted(self.store.node.state, self.store.node.retry_resizes("pods_removed"))
        if self.twin is not None:
            self.twin.retry_resizes("pods_removed")
        self.store.save()

    def _forget(self, uid: str) -> None:
        del self.running[uid]
        self.promises.forget(uid)

    def _restart(self) -> None:
        """P8, without a kill."""
        before = self.store.node.state
        self.store = self.open(self.disk, self.running.values())
        assert self.store.refused == []
        assert held(self.store.node.state) == held(before)
        self.counts["restarts"] += 1
        if self.twin is not None:
            for uid in list(self.twin.pending_resizes):
                self.twin.kubelet.resizes.drop(uid)

    def _change_policy(self) -> None:
        """Other rules from now on; no pod gains or loses anything by that."""
        before, disk = self.store.node.state, dict(self.disk.files)
        rules = draw_rules(self.random, exclusive=self.setting.policy.resize.exclusive)
        policy = replace(self.setting.policy, resize=rules)
        self.store.change_policy(policy)
        self.setting = self.setting._replace(policy=policy)
        assert self.store.node.state == before
        changed = {path.name for path, data in self.disk.files.items() if disk.get(path) != data}
        assert changed <= {POLICY_STATE_FILE}
        self.counts["policy changes"] += 1
        if self.twin is not None:
            self.twin.change_policy(policy)

    def _wish(self) -> Pod:
        """Other sizes for a pod: any, or P5's way back to the promised ones."""
        uid = self.random.choice(list(self.running))
        pod = self.running[uid]
        if self.random.random() < 0.2:
            return self._promised_sizes(pod)
        drawn = (draw_sizes(self.random, pod) for _ in range(4))
        return next((size for size in drawn if size.spec != pod.spec), pod)

    def _promised_sizes(self, pod: Pod) -> Pod:
        uid = pod.metadata.uid

        def change(container: Any) -> Any:
            promised = self.promises.containers.get((uid, container.name), 0)
            if not promised:
                return container
            amounts = dict(container.resources.requests) | {"cpu": Quantity.of(promised.bit_count())}
            return replace(container, resources=ResourceRequirements(amounts, amounts))

        return replace(pod, spec=map_containers(pod.spec, change))

    def _resize(self, desired: Pod) -> None:
        if self.random.random() < 0.7:
            self.store.save()  # the last resize has ended
        before, disk = self.store.node.state, dict(self.disk.files)
        ended = not any(
            policy_state.read_intents(data) for path, data in disk.items() if path.name == POLICY_STATE_FILE
        )
        self.disk.log.clear()
        old = tuple(self.running.values())
        try:
            decision = self.store.resize(desired)
        except InputError:
            self.counts["resizes no API server stores"] += 1
            return
        self._tell_twin("resize", desired, decision)
        self.counts[decision.outcome] += 1
        after = self.store.node.state
        if not self._granted(before, (decision, *decision.others)):
            assert all(disk.get(path) == data or not (ended or path.name != POLICY_STATE_FILE)
                       for path, data in self.disk.files.items())  # P7  # fmt: skip
            assert held(after) == held(before)
            return
        if not self.setting.policy.resize.exclusive:  # P9
            assert self.folder / place_of(POLICY_STATE_FILE) not in self.disk.files
            assert (after.cpu.default, after.cpu.assignments) == (before.cpu.default, before.cpu.assignments)
        self._kill(disk, [(old, before), (tuple(self.running.values()), after)])

    def _granted(self, before: NodeState, answers: Iterable[ResizeDecision]) -> list[str]:
        """Pods whose resize was granted have what the rules say; P4: those at their promised size have that."""
        after = self.store.node.state
        granted = [one.uid for one in answers if one.outcome == "Allocated"]
        for uid in granted:
            if not after.pods[uid].ignored:
                self.promises.resized(before, after, uid)
            self.running[uid] = after.pods[uid].spec
            if self.random.random() < 0.3:
                assert self.store.node.copy().resize(self.running[uid]).outcome == "Unchanged"  # P4
            self._check_cores(before, after, uid)
            self.counts.update(_kinds(before, after, uid))
        for uid, name in self.promises.containers:
            promised, own = self.promises.containers[uid, name], after.cpu.assignment(uid, name) or 0
            assert own == promised or own.bit_count() != promised.bit_count()
        return granted

    def _check_cores(self, before: NodeState, after: NodeState, uid: str) -> None:
        """P2: what came are whole cores under `full-pcpus-only`."""
        cpu = self.store.node.kubelet.manager.cpu
        if cpu.options.full_pcpus_only and not after.pods[uid].managed:
            for name in long_lived_names(after.pods[uid]):
                had, came = _owns(before, uid, name), _owns(after, uid, name) & ~_owns(before, uid, name)
                assert not had or all(core & came in (0, core) for core in cpu.topology.cores.values())

    # P6, P8: killed at any write

    def _kill(self, disk: Mapping[Path, bytes], outcomes: list[tuple[tuple[Pod, ...], NodeState]]) -> None:
        """A process that ended before or after any write of the last step goes on as the runtime's pods say: as if the
        step had never been, or as if it were done. What was not written down first cannot have been granted."""
        log = list(self.disk.log)
        for done in range(len(log) + 1):
            if self.random.random() < 0.5 and len(log) > 1:
                continue
            running, expected = self.random.choice(outcomes) if done else outcomes[0]
            left = Disk({**disk, **dict(log[:done])})
            store = self.open(left, running, log[done] if done < len(log) else None)
            self.counts["kills"] += 1
            assert store.refused == []
            check(store.node)
            assert held(store.node.state) == held(expected)

    # P11: names do not matter

    def _other_names(self) -> Node:
        machine, config, policy, predicates = self.setting
        return Node(machine, config, policy=policy, predicates=predicates)

    def _tell_twin(self, what: str, argument: Any, answer: Any) -> None:
        if self.twin is None:
            return
        self.counts["steps under other names"] += 1
        if what == "remove":
            self.twin.remove(_renamed_uid(argument))
        elif what == "admit":
            assert self.twin.admit(_renamed(argument)).admitted == answer
        else:
            assert self.twin.resize(_renamed(argument)).outcome == answer.outcome
        mine, theirs = self.store.node.state.cpu, self.twin.state.cpu
        for ours, other in ((mine.assignments, theirs.assignments), (mine.pod_cpus, theirs.pod_cpus)):
            assert {_renamed_uid(uid): entry for uid, entry in ours.items()} == other

    def _end(self) -> None:
        """Without pods nothing is left."""
        for uid in self.store.node.pods:
            self.store.remove(uid)
        state = self.store.node.state
        assert (state.cpu.loans, state.cpu.pod_loans, state.cpu.assignments, state.cpu.pod_cpus) == ({}, {}, {}, {})
        assert not any(ledger.number_of_assignments for ledger in state.memory.machine_state.values())


def _kinds(before: NodeState, after: NodeState, uid: str) -> list[str]:
    """Return the kinds of a resize, for the coverage of a history."""
    (had, own), (has, blocks) = ((one.cpu.of_pod(uid), one.memory.of_pod(uid)) for one in (before, after))
    found = {
        "resizes of exclusive CPUs": had.assignments != has.assignments,
        "resizes of pods with pod CPUs": bool(had.pod_cpus),
        "resizes of memory": own != blocks,
        "resizes of memory on several nodes": any(
            len(block.numa_affinity or ()) > 1 for one in (own, blocks) for block in one.charged_blocks(pod_level=True)
        ) and own != blocks,
    }  # fmt: skip
    return [name for name, true in found.items() if true]


def _renamed_uid(uid: str) -> str:
    return f"{9 - int(uid[1:]) % 10}-{uid}"


def _renamed(pod: Pod) -> Pod:
    uid = _renamed_uid(pod.metadata.uid)
    return replace(pod, metadata=replace(pod.metadata, uid=uid, name=uid))
