"""Equivalent cells: cells with certainly equal results, of which one is simulated for all.

Two configurations are equivalent where every class of nodes has the same settings. Where every pod has one container,
the pod's requests are its container's, so the scope of the Topology Manager makes no difference either.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from podslice.fleet.scenario.cells import FleetCell, Study
from podslice.fleet.scenario.cluster import kubelet_profile
from podslice.fleet.scenario.inputs import canonical_json
from podslice.fleet.scenario.scenario import FleetScenario
from podslice.values.quirks import is_without_defects


def group_equivalent(study: Study, cells: Iterable[FleetCell]) -> dict[str, tuple[FleetCell, ...]]:
    """Return equivalent cells by the key of the one that is simulated."""
    found: dict[bytes, list[FleetCell]] = {}
    settings: dict[tuple[str, str, bool], bytes] = {}
    for cell in cells:
        scoped = _may_depend_on_scope(study.scenario, cell)
        place = cell.alternative, cell.configuration, scoped
        if place not in settings:
            settings[place] = _settings_key(study, cell, scoped=scoped)
        parts = cell.alternative, cell.scheduler, cell.transform, cell.seed
        found.setdefault(canonical_json(parts) + settings[place], []).append(cell)
    return {same[0].key: tuple(same) for same in found.values()}


def _settings_key(study: Study, cell: FleetCell, *, scoped: bool) -> bytes:
    """Return all settings of a cell's kubelets as bytes."""
    configs = study.configs(cell)
    if not scoped:
        # Compared with one scope, as the scope makes no difference here.
        configs = {kind: replace(one, topology_manager_scope="container") for kind, one in configs.items()}
    entry = study.scenario.kubelets[cell.kubelet]
    # Pods that a dump has on its nodes are placed differently with the configuration they ran with, so each
    # configuration of such a cluster is a class of its own.
    ran_with = cell.configuration if study.cluster.starts else ""
    plain = [[kind, msgspec.to_builtins(one, str_keys=True)] for kind, one in sorted(configs.items())]
    profiles = [kubelet_profile(study.scenario, cell.kubelet, one) for one in study.cluster.classes]
    return canonical_json([ran_with, entry.policy, sorted(entry.policy_by_class.items()), plain, profiles])


def _may_depend_on_scope(scenario: FleetScenario, cell: FleetCell) -> bool:
    """Return False where the Topology Manager's scope certainly makes no difference. NUMA-aware scheduler plugins,
    policies of podslice and the released kubelet treat the two scopes differently."""
    entry, transform = scenario.kubelets[cell.kubelet], scenario.transforms[cell.transform]
    readings = [one.reading for one in scenario.workload]
    if transform.reading is not None:
        readings.append(transform.reading)
    return (
        not is_without_defects(scenario.profile)
        or scenario.schedulers[cell.scheduler].filter == "kube-nrt"
        or bool(entry.policy or entry.policy_by_class)
        or transform.sidecars is not None
        or any(one.cluster or one.manifests for one in scenario.workload)
        or any(one.containers != "one" for one in readings)
    )
