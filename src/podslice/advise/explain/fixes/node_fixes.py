"""Fixes in the node: another kubelet configuration or release, a node that is filled again, huge pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec

from podslice.advise.explain.fixes.alternatives import Alternatives
from podslice.advise.explain.fixes.bench import PodNeeds
from podslice.advise.explain.fixes.changes import ChangeMachine, ChangeRelease, Reconfigure
from podslice.advise.explain.fixes.fix import Edit, Fix, price
from podslice.api.pod.demand import HUGEPAGES_PREFIX, pod_requests
from podslice.config.kubelet import KubeletConfig, MemoryReservation
from podslice.config.policy_options import POLICIES, SCOPES
from podslice.machine.model import HugePages, Machine
from podslice.node.view import NodeView
from podslice.values.cpu_policy_options import CPU_POLICY_OPTIONS
from podslice.values.quantity import Quantity, hugepage_resource
from podslice.values.quirks import PODSLICE
from podslice.values.releases.table import RELEASES

replace = msgspec.structs.replace
_BY_SOCKET = "align-by-socket"


# Another configuration


def repacking(nodes: Alternatives, needs: PodNeeds) -> Iterator[Fix]:
    """Yield the fix that the node is drained and its pods come back in order, where that alone leaves room."""
    node = nodes.view
    if node.pods and nodes.admits_drained(needs, node.config, node.machine):
        text = "Drain the node and let its pods come back in order: then this pod fits too"
        cost = price("repack", drained_pods=len(node.pods))
        yield Fix("repack", text, cost, Reconfigure(node.config, drained=True))


def configurations(nodes: Alternatives, needs: PodNeeds, *, may_drain: bool = True) -> Iterator[Fix]:
    """Yield fixes with one other policy, scope, pair of both, or option of the kubelet."""
    config = nodes.view.config
    kinds = [("topology", topology_configs, 0.0), ("options", option_configs, 0.0), ("managers", _manager_configs, 0.3)]
    # Where CPUs lack in all, it does not matter where they are, except for a budget that another scope divides.
    lack = nodes.lack(needs)
    if lack.lacks_cpus and not needs.admission.managed:
        kinds = kinds[-1:]
    elif not may_drain and not lack.has_place and not needs.admission.managed:
        # What is free on each NUMA node stays, so that of the options only one that looks at sockets helps.
        kinds[1] = "socket", _socket_config, 0.0
    for key, make, extra in kinds:
        configs = nodes.configs(key, partial(make, config))
        yield from try_configs(nodes, needs, "config", configs, extra=extra, may_drain=may_drain)


def releases(nodes: Alternatives, needs: PodNeeds) -> Iterator[Fix]:
    """Yield the nearest newer release whose kubelet admits the pod on the drained node, else the nearest older one."""
    node = nodes.view
    here = node.release.minor
    if not _may_differ(node, needs):
        return
    # An upgrade before a downgrade; a kubelet of another minor version starts on a drained node only.
    for minor in sorted(RELEASES, key=lambda one: (one < here, abs(one - here))):
        if minor != here and nodes.admits_in_release(needs, RELEASES[minor]):
            how = _how_to_apply(node, drained=True)
            text = f"Run a kubelet of Kubernetes {RELEASES[minor]} (now {node.release}) {how}"
            cost = price("release", drained_pods=len(node.pods) or None)
            yield Fix("release", text, cost, ChangeRelease(str(RELEASES[minor])))
            return


def _may_differ(node: NodeView, needs: PodNeeds) -> bool:
    """Whether releases may decide otherwise about a pod. Without their defects they differ in groups of NUMA nodes, a
    CPU option, devices' hints, and pods with pod-level resources."""
    return (
        node.quirks != PODSLICE
        or (node.binds_memory and len(node.machine.nodes) > 1)
        or node.cpu_options.prefer_align_cpus_by_uncorecache
        or needs.shape is None
        or needs.admission.pod_level
        or any(one.managed or one.pod_level for one in node.pods.values())
    )


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
    # A restart refuses options that the release, or a gate, does not allow.
    for name in CPU_POLICY_OPTIONS:
        if name in options:
            others = {key: value for key, value in options.items() if key != name}
            yield replace(config, cpu_manager_policy_options=others)
        else:
            yield replace(config, cpu_manager_policy_options={**options, name: "true"})


def _socket_config(config: KubeletConfig) -> Iterator[KubeletConfig]:
    options = config.cpu_manager_policy_options
    if config.cpu_manager_policy == "static" and _BY_SOCKET not in options:
        yield replace(config, cpu_manager_policy_options={**options, _BY_SOCKET: "true"})


def _manager_configs(config: KubeletConfig) -> Iterator[KubeletConfig]:
    if config.memory_manager_policy != "None":
        yield replace(config, memory_manager_policy="None", reserved_memory=())
    if config.cpu_manager_policy != "none":
        yield replace(config, cpu_manager_policy="none", cpu_manager_policy_options={})


def try_configs(
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
        edits, settings = nodes.edits(config, _describe_config)
        # Fewer edits help alone already.
        if any(fewer < set(edits) for fewer in enough):
            continue
        drained = not nodes.admits_restarted(needs, config, node.machine)
        if drained and not (may_drain and nodes.admits_drained(needs, config, node.machine)):
            continue
        if not drained:
            enough.append(set(edits))
        text = f"{settings} {_how_to_apply(node, drained=drained)}"
        extra_cost = extra + 0.1 * (len(edits) - 1)
        cost = price(code, extra=extra_cost, drained_pods=len(node.pods) or None if drained else None)
        yield Fix(code, text, cost, Reconfigure(config, drained), edits)


def _describe_config(before: KubeletConfig, after: KubeletConfig) -> tuple[tuple[Edit, ...], str]:
    edits = config_differences(before, after)
    return edits, settings_text(edits)


def settings_text(edits: Sequence[Edit]) -> str:
    """Describe edits of a configuration: `Set a: 1 (now 2) and remove b (now 3)`."""
    parts = [
        f"set {e.path}: {e.after} (now {e.before or 'not set'})" if e.after else f"remove {e.path} (now {e.before})"
        for e in edits
    ]
    text = " and ".join(parts)
    return text[:1].upper() + text[1:]


def _how_to_apply(node: NodeView, *, drained: bool) -> str:
    if not drained:
        return "and restart the kubelet" + ("; running pods keep what they have" if node.pods else "")
    if node.pods:
        return "on the drained node; all its pods fit again"
    return "and restart the kubelet without its old state files"


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


# Huge pages


def hugepages(nodes: Alternatives, needs: PodNeeds, *, may_drain: bool = True) -> Iterator[Fix]:
    """Yield fixes with more huge pages on one NUMA node, out of its ordinary memory, or fewer where memory is short."""
    for name, quantity in pod_requests(needs.pod).items():
        if name.startswith(HUGEPAGES_PREFIX) and not quantity.is_zero():
            found = _more_pages(nodes, needs, name, quantity.value())
        elif name == "memory" and not quantity.is_zero():
            found = _fewer_pages(nodes, needs, quantity.value())
        else:
            continue
        for machine, text in found:
            fix = _with_machine(nodes, needs, machine, text, may_drain=may_drain)
            if fix is not None:
                yield fix
                break


def _more_pages(nodes: Alternatives, needs: PodNeeds, name: str, amount: int) -> Iterator[tuple[Machine, str]]:
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
                yield machine, f"Allocate {pages} more {name} pages on NUMA node {numa.id}"


def _fewer_pages(nodes: Alternatives, needs: PodNeeds, amount: int) -> Iterator[tuple[Machine, str]]:
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
                    yield machine, f"Release {pages} unused {name} pages on NUMA node {numa.id}"


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


def _with_machine(nodes: Alternatives, needs: PodNeeds, machine: Machine, what: str, *, may_drain: bool) -> Fix | None:
    node = nodes.view
    for drained in (False, True) if may_drain else (False,):
        works = nodes.admits_drained if drained else nodes.admits_restarted
        if works(needs, node.config, machine):
            cost = price("hugepages", drained_pods=len(node.pods) or None if drained else None)
            return Fix(
                "hugepages", f"{what} {_how_to_apply(node, drained=drained)}", cost, ChangeMachine(machine, drained)
            )
    return None
