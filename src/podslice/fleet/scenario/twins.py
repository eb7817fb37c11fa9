"""Cells that must come to the same: one of them is simulated, and its outcome is that of all.

Two configurations are one where every class of nodes has the same settings. And where every pod has one container, what
the pod needs is what its container needs, so it does not matter which of them the Topology Manager aligns (its scope).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from podslice.fleet.scenario.cells import FleetCell, Study
from podslice.fleet.scenario.inputs import canonical
from podslice.fleet.scenario.scenario import FleetScenario


def groups(study: Study, cells: Iterable[FleetCell]) -> dict[str, tuple[FleetCell, ...]]:
    """The cells that come to the same, by the key of the one that is simulated."""
    found: dict[bytes, list[FleetCell]] = {}
    settings: dict[tuple[str, str, bool], bytes] = {}
    for cell in cells:
        scoped = _scope_counts(study.scenario, cell)
        place = cell.alternative, cell.configuration, scoped
        if place not in settings:
            settings[place] = _settings(study, cell, scoped=scoped)
        parts = cell.alternative, cell.scheduler, cell.transform, cell.seed
        found.setdefault(canonical(parts) + settings[place], []).append(cell)
    return {same[0].key: tuple(same) for same in found.values()}


def _settings(study: Study, cell: FleetCell, *, scoped: bool) -> bytes:
    """All that a cell's kubelets are told. Pods that a dump has on nodes are another matter with the configuration that
    they ran with, so there each is its own."""
    configs = study.configs(cell)
    if not scoped:
        configs = {kind: replace(one, topology_manager_scope="container") for kind, one in configs.items()}
    entry = study.scenario.kubelets[cell.kubelet]
    told = cell.configuration if study.cluster.told else ""
    plain = [[kind, msgspec.to_builtins(one, str_keys=True)] for kind, one in sorted(configs.items())]
    return canonical([told, entry.policy, sorted(entry.policy_by_class.items()), plain])


def _scope_counts(scenario: FleetScenario, cell: FleetCell) -> bool:
    """False where it is certain that the Topology Manager's scope makes no difference. Scheduler plugins that know of
    NUMA nodes, policies of podslice and the released kubelet have ways of their own for each."""
    entry, transform = scenario.kubelets[cell.kubelet], scenario.transforms[cell.transform]
    readings = [one.reading for one in scenario.workload]
    if transform.reading is not None:
        readings.append(transform.reading)
    return (
        scenario.profile != "podslice"
        or scenario.schedulers[cell.scheduler].filter == "kube-nrt"
        or bool(entry.policy or entry.policy_by_class)
        or transform.sidecars is not None
        or any(one.cluster or one.manifests for one in scenario.workload)
        or any(one.containers != "one" for one in readings)
    )
