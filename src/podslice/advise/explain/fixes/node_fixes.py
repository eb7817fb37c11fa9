"""Fixes outside the pod: moving or evicting other pods, another kubelet configuration, huge pages, another node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from podslice.advise.explain.fixes.alternatives import Alternatives
from podslice.advise.explain.fixes.bench import PodNeeds
from podslice.advise.explain.fixes.changes import ChangeMachine, EmptyNode, Reconfigure, Remove
from podslice.advise.explain.fixes.fix import COSTS, Edit, Fix, price, text_of
from podslice.advise.explain.fixes.removals import Removals
from podslice.api.pod.critical import is_critical
from podslice.api.pod.demand import HUGEPAGES_PREFIX, pod_requests
from podslice.api.pod.eligibility import AdmissionPod
from podslice.config.kubelet import KubeletConfig, MemoryReservation
from podslice.config.policy_options import POLICIES, SCOPES
from podslice.machine.model import HugePages, Machine
from podslice.node.view import NodeView
from podslice.values.cpu_policy_options import CPU_POLICY_OPTIONS
from podslice.values.cpuset import CPUSetError, format_bits, iter_bits, parse_bits
from podslice.values.quantity import BINARY_SI, Quantity, QuantityError, hugepage_resource

replace = msgspec.structs.replace
_MOST_MOVES = 8
_MOST_NAMED = 6


# Other pods


def pod_moves(nodes: Alternatives, needs: PodNeeds) -> Iterator[Fix]:
    """Yield the least disruptive pod, pair, or set of pods to restart on the node, and to evict from it."""
    node = nodes.view
    others = sorted((p.admission for p in nodes.running if p.admission.uid != needs.admission.uid), key=disruption)
    search = Removals(nodes, needs)
    uids = tuple(other.uid for other in others)
    evicted: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    may_move = nodes.has_room_for_all(needs)
    for count, one in enumerate(search.singles(uids)):
        evicted = evicted or (one,)
        if may_move and nodes.readmits((one,), needs):
            moved = (one,)
        # Trying whether a pod comes back takes a whole node each time, so it ends after a few.
        if moved or not may_move or count == _MOST_MOVES:
            break
    if not evicted:
        evicted = search.pair(uids) or search.minimal_set(uids)
        if evicted and may_move and nodes.readmits(evicted, needs):
            moved = evicted
    if evicted:
        yield removal(node, evicted, back=False)
    if moved:
        yield removal(node, moved, back=True)


def disruption(pod: AdmissionPod) -> tuple[bool, int, int, str]:
    """Return a sort key for the cost of losing a pod: critical pods last, then by CPUs owned and requested."""
    cpu = pod_requests(pod.spec).get("cpu")
    return is_critical(pod.spec), pod.cpus, cpu.milli_value() if cpu else 0, pod.uid


def removal(node: NodeView, uids: tuple[str, ...], *, back: bool) -> Fix:
    """Return the fix that these pods leave, or start again after the pod in question."""
    names = [f"{m.namespace}/{m.name}" for m in (node.pods[uid].spec.metadata for uid in uids)]
    listed = ", ".join(names[:_MOST_NAMED])
    if len(names) > _MOST_NAMED:
        listed += f" and {len(names) - _MOST_NAMED} more"
    cpus = sum(node.pods[uid].cpus for uid in uids)
    critical = sum(is_critical(node.pods[uid].spec) for uid in uids)
    if back:
        code = "move-pods"
        text = f"Restart {listed} after this pod: on this node {'they fit' if len(uids) > 1 else 'it fits'} elsewhere"
    else:
        # What they own may be more than they need: an init container that has ended keeps its CPUs.
        owned = sum(node.owned_by(uid).bit_count() for uid in uids)
        code, text = "evict-pods", f"Evict {listed} ({owned} exclusive CPUs)"
    cost = COSTS[code] + 2 * (len(uids) - 1) + min(0.9, cpus / 1000) + 5 * critical
    return Fix(code, text, round(cost, 3), Remove(uids, back))


# Another node


def empty_node(nodes: Alternatives, needs: PodNeeds) -> Iterator[Fix]:
    """Yield the fix of another node with the same machine and configuration and no pods."""
    node = nodes.view
    if node.pods and nodes.admits_empty(needs, node.config, node.machine):
        yield Fix("empty-node", "Place it on an empty node of this type", COSTS["empty-node"], EmptyNode())


# Another configuration


def configurations(nodes: Alternatives, needs: PodNeeds) -> Iterator[Fix]:
    """Yield fixes with one other policy, scope, pair of both, or option of the kubelet."""
    node = nodes.view
    config = node.config
    packed = Reconfigure(config, drained=True)
    repacks = bool(node.pods) and nodes.admits_drained(needs, config, node.machine)
    if repacks:
        text = "Drain the node and let its pods come back in order: packed again, they leave room"
        yield Fix("repack", text, price("repack", drained_pods=len(node.pods)), packed)
    may_drain = not repacks
    yield from _try_configs(nodes, needs, "config", topology_configs(config), may_drain=may_drain)
    yield from _try_configs(nodes, needs, "config", option_configs(config), may_drain=may_drain)
    yield from _try_configs(nodes, needs, "config", _manager_configs(config), extra=1.5, may_drain=may_drain)


def topology_configs(config: KubeletConfig) -> Iterator[KubeletConfig]:
    """Yield the configuration with another policy or scope of the Topology Manager, nearest first."""
    now = config.topology_manager_policy, config.topology_manager_scope
    found = [(policy, scope) for policy in POLICIES for scope in SCOPES if (policy, scope) != now]
    found.sort(key=lambda pair: (pair[0] != now[0]) + (pair[1] != now[1]))
    for policy, scope in found:
        # Policy none has no scope: one variant of it is enough.
        if policy != "none" or scope == now[1]:
            yield replace(config, topology_manager_policy=policy, topology_manager_scope=scope)


def option_configs(config: KubeletConfig) -> Iterator[KubeletConfig]:
    """Yield the configuration with one option of the static policy added or removed."""
    if config.cpu_manager_policy != "static":
        return
    options = config.cpu_manager_policy_options
    for name in CPU_POLICY_OPTIONS:
        if name in options:
            others = {key: value for key, value in options.items() if key != name}
            yield replace(config, cpu_manager_policy_options=others)
        else:
            yield replace(config, cpu_manager_policy_options={**options, name: "true"})


def _manager_configs(config: KubeletConfig) -> Iterator[KubeletConfig]:
    if config.memory_manager_policy != "None":
        yield replace(config, memory_manager_policy="None", reserved_memory=())
    if config.cpu_manager_policy != "none":
        yield replace(config, cpu_manager_policy="none", cpu_manager_policy_options={})


def _try_configs(
    nodes: Alternatives,
    needs: PodNeeds,
    code: str,
    configs: Iterable[KubeletConfig],
    *,
    extra: float = 0.0,
    may_drain: bool = True,
) -> Iterator[Fix]:
    """Yield a fix for each configuration that helps, with the running pods where they are if possible, else on a
    drained node.

    A configuration that only adds to a change that helps alone is left out; so is a drained node (`may_drain` False)
    where draining alone would do.
    """
    node = nodes.view
    enough: list[set[Edit]] = []
    for config in configs:
        if node.pods and not nodes.admits_empty(needs, config, node.machine):
            continue
        edits = config_differences(node.config, config)
        # Fewer edits help alone already.
        if any(fewer < set(edits) for fewer in enough):
            continue
        drained = not nodes.admits_restarted(needs, config, node.machine)
        if drained and not (may_drain and nodes.admits_drained(needs, config, node.machine)):
            continue
        changes = " and ".join(f"{e.path}: {e.after or 'nothing'} (was {e.before or 'nothing'})" for e in edits)
        how = _how_to_apply(node, drained=drained)
        if not drained:
            enough.append(set(edits))
        extra_cost = extra + 0.1 * (len(edits) - 1)
        cost = price(code, extra=extra_cost, drained_pods=_pods_to_drain(node, drained=drained))
        yield Fix(code, f"Set {changes} {how}", cost, Reconfigure(config, drained), edits)


def _pods_to_drain(node: NodeView, *, drained: bool) -> int | None:
    """Return how many pods must leave for a while; None where the node need not be, or is, empty."""
    return len(node.pods) or None if drained else None


def _how_to_apply(node: NodeView, *, drained: bool) -> str:
    if drained and not node.pods:
        return "and start the kubelet without its old state files"
    if drained:
        return "on the drained node; all its pods fit again"
    return "and restart the kubelet" + ("; running pods keep what they have" if node.pods else "")


def config_differences(before: KubeletConfig, after: KubeletConfig) -> tuple[Edit, ...]:
    """Return the fields in which two configurations differ, by their YAML names; options one by one."""
    edits: list[Edit] = []
    for name, encoded in zip(before.__struct_fields__, before.__struct_encode_fields__, strict=True):
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if isinstance(old, dict):
            for key in {**old, **new}:
                if old.get(key) != new.get(key):
                    edits.append(Edit(f"{encoded}.{key}", str(old.get(key, "")), str(new.get(key, ""))))
        else:
            edits.append(Edit(encoded, _plain(old), _plain(new)))
    return tuple(edits)


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        shown = (f"NUMA {r.numa_node} {_amounts(r.limits)}" for r in value if isinstance(r, MemoryReservation))
        return "; ".join(shown)
    return str(value)


def _amounts(limits: dict[str, str]) -> str:
    return ", ".join(f"{name} {text}" for name, text in limits.items())


# Reservation


def reservations(nodes: Alternatives, needs: PodNeeds) -> Iterator[Fix]:
    """Yield fixes with fewer reserved CPUs on one NUMA node, or less memory reserved on one."""
    for configs in (*_cpu_reservations(nodes.view), *_memory_reservations(nodes.view.config)):
        yield from _first_that_helps(nodes, needs, configs)


def _first_that_helps(nodes: Alternatives, needs: PodNeeds, configs: Sequence[KubeletConfig]) -> Iterator[Fix]:
    """Yield the first of ever larger changes that helps; none if the largest does not."""
    # The largest change goes first: where it does not help, no smaller one does.
    if configs and next(_try_configs(nodes, needs, "reservation", configs[-1:]), None) is not None:
        for config in configs:
            fix = next(_try_configs(nodes, needs, "reservation", [config]), None)
            if fix is not None:
                yield fix
                return


def _cpu_reservations(node: NodeView) -> Iterator[list[KubeletConfig]]:
    config = node.config
    try:
        reserved = parse_bits(config.reserved_system_cpus)
    except CPUSetError:
        return
    if config.cpu_manager_policy != "static" or not reserved:
        return
    for cpus in (*node.topology.numa_nodes.values(), reserved):
        configs, left = [], reserved
        for cpu in sorted(iter_bits(cpus & reserved), reverse=True):
            left &= ~(1 << cpu)
            if left:
                configs.append(replace(config, reserved_system_cpus=format_bits(left)))
        yield configs


def _memory_reservations(config: KubeletConfig) -> Iterator[list[KubeletConfig]]:
    """Yield, for each NUMA node, configurations that release a quarter, half, and all of what is reserved for the
    system there."""
    if config.memory_manager_policy != "Static" or "memory" not in config.system_reserved:
        return
    for place, reservation in enumerate(config.reserved_memory):
        try:
            here = Quantity.parse(reservation.limits.get("memory", "0")).value()
            system = Quantity.parse(config.system_reserved["memory"]).value()
        except QuantityError:
            continue
        configs = []
        for part in (4, 2, 1):
            less = min(here, system) // part
            if not less:
                continue
            limits = {**reservation.limits, "memory": _bytes(here - less)}
            reserved = list(config.reserved_memory)
            reserved[place] = replace(reservation, limits=limits)
            # The kubelet starts only if reservedMemory adds up to what is reserved in all, so both shrink by the same
            # amount.
            system_reserved = {**config.system_reserved, "memory": _bytes(system - less)}
            configs.append(replace(config, reserved_memory=tuple(reserved), system_reserved=system_reserved))
        yield configs


def _bytes(amount: int) -> str:
    return text_of(Quantity.of(amount, BINARY_SI))


# Huge pages


def hugepages(nodes: Alternatives, needs: PodNeeds) -> Iterator[Fix]:
    """Yield fixes with more huge pages on one NUMA node, out of its ordinary memory, or fewer where memory is short."""
    for name, quantity in pod_requests(needs.pod).items():
        if name.startswith(HUGEPAGES_PREFIX) and not quantity.is_zero():
            yield from islice(_more_pages(nodes, needs, name, quantity.value()), 1)
        elif name == "memory" and not quantity.is_zero():
            yield from islice(_fewer_pages(nodes, needs, quantity.value()), 1)


def _more_pages(nodes: Alternatives, needs: PodNeeds, name: str, amount: int) -> Iterator[Fix]:
    """Yield as many more pages as a NUMA node or all together lack, else as many as the pod requests."""
    size = Quantity.parse(name.removeprefix(HUGEPAGES_PREFIX)).value()
    view = nodes.view
    lacking_in_all = amount - nodes.room(needs.pod, name)
    for numa in view.machine.nodes:
        lacking_here = amount - (_free_on(view, numa.id, name) or 0)
        # Fewest pages first: each takes ordinary memory from other pods.
        for pages in sorted({-(-lacking // size) for lacking in (lacking_in_all, lacking_here, amount)}):
            machine = _with_pages(nodes, numa.id, size // 1024, pages) if pages > 0 else None
            if machine is not None:
                text = f"Allocate {pages} more {name} pages on NUMA node {numa.id}"
                yield from _with_machine(nodes, needs, machine, text)


def _fewer_pages(nodes: Alternatives, needs: PodNeeds, amount: int) -> Iterator[Fix]:
    """Yield as many unused pages less as memory lacks on a NUMA node or in all, else all unused ones."""
    view = nodes.view
    lacking_in_all = amount - nodes.room(needs.pod, "memory")
    for numa in view.machine.nodes:
        lacking_here = amount - (_free_on(view, numa.id, "memory") or 0)
        for pool in numa.hugepages:
            size, name = pool.page_size_ki * 1024, hugepage_resource(pool.page_size_ki)
            in_ledger = _free_on(view, numa.id, name)
            unused = min(pool.num_pages, (nodes.room(needs.pod, name) if in_ledger is None else in_ledger) // size)
            enough = {-(-lacking // size) for lacking in (lacking_in_all, lacking_here)}
            for pages in sorted({unused, *(pages for pages in enough if pages < unused)}):
                machine = _with_pages(nodes, numa.id, pool.page_size_ki, -pages) if pages > 0 else None
                if machine is not None:
                    text = f"Release {pages} unused {name} pages on NUMA node {numa.id}"
                    yield from _with_machine(nodes, needs, machine, text)


def _free_on(node: NodeView, numa: int, name: str) -> int | None:
    """Return the free bytes in the Memory Manager's ledger; None where it keeps none."""
    state = node.memory.get(numa)
    table = (state.memory_map or {}).get(name) if state else None
    return None if table is None else table.free


def _with_pages(nodes: Alternatives, numa: int, size_ki: int, pages: int) -> Machine | None:
    """Return the machine with `pages` more pages on one node (negative: fewer); None where its memory does not allow
    it."""
    return nodes.machine((numa, size_ki, pages), lambda: _change_pages(nodes.view.machine, numa, size_ki, pages))


def _change_pages(machine: Machine, numa: int, size_ki: int, pages: int) -> Machine | None:
    nodes = []
    for node in machine.nodes:
        if node.id == numa:
            pools = {pool.page_size_ki: pool.num_pages for pool in node.hugepages}
            pools[size_ki] = pools.get(size_ki, 0) + pages
            node = replace(node, hugepages=tuple(HugePages(size, count) for size, count in sorted(pools.items())))
            if sum(pool.bytes for pool in node.hugepages) > node.memory:
                return None
        nodes.append(node)
    return replace(machine, nodes=tuple(nodes), hugepages=None)


def _with_machine(nodes: Alternatives, needs: PodNeeds, machine: Machine, what: str) -> Iterator[Fix]:
    node = nodes.view
    for drained in (False, True):
        works = nodes.admits_drained if drained else nodes.admits_restarted
        if works(needs, node.config, machine):
            cost = price("hugepages", drained_pods=_pods_to_drain(node, drained=drained))
            yield Fix(
                "hugepages", f"{what} {_how_to_apply(node, drained=drained)}", cost, ChangeMachine(machine, drained)
            )
            return
