"""The changes of the releases between two kubelets, as far as they can concern a node (docs/releases.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from podslice.api.pod.spec import Pod, containers_with_kind
from podslice.config.kubelet import DEFAULT_CFS_PERIOD, KubeletConfig, unknown_fields
from podslice.machine.devices import DeviceInventory
from podslice.values.releases.release import Row, Touches
from podslice.values.releases.table import OLDEST, RELEASES

ROWS: Final = tuple(row for release in RELEASES.values() for row in release.rows)
"""All changes, oldest first."""


class Asked(NamedTuple):
    """The node that a row may concern: its configuration, devices and pods."""

    config: KubeletConfig
    devices: DeviceInventory
    pods: tuple[Pod, ...]


def _always(asked: Asked) -> bool:
    return True


def _is_static(asked: Asked) -> bool:
    return asked.config.cpu_manager_policy == "static"


def _binds_memory(asked: Asked) -> bool:
    return asked.config.memory_manager_policy == "Static"


def _has_devices(asked: Asked) -> bool:
    return bool(asked.devices.resources)


def _has_options(asked: Asked) -> bool:
    return bool(asked.config.cpu_manager_policy_options or asked.config.topology_manager_policy_options)


def _has_whole_cores(asked: Asked) -> bool:
    return "full-pcpus-only" in asked.config.cpu_manager_policy_options


def _has_topology_options(asked: Asked) -> bool:
    return bool(asked.config.topology_manager_policy_options)


def _sets_gates(asked: Asked) -> bool:
    return bool(asked.config.feature_gates)


def _has_sidecars(asked: Asked) -> bool:
    return any(kind == "sidecar" for pod in asked.pods for kind, _ in containers_with_kind(pod))


def _has_pod_level(asked: Asked) -> bool:
    return any(pod.spec.resources is not None for pod in asked.pods)


def _has_later_fields(asked: Asked) -> bool:
    return bool(unknown_fields(asked.config, RELEASES[OLDEST]))


def _may_swap(asked: Asked) -> bool:
    return asked.config.memory_swap.get("swapBehavior") == "LimitedSwap"


def _has_memory_quality(asked: Asked) -> bool:
    return asked.config.feature_gates.get("MemoryQoS", False)


def _has_period(asked: Asked) -> bool:
    return asked.config.cpu_cfs_quota_period != DEFAULT_CFS_PERIOD


_CONCERNS: dict[Touches, Callable[[Asked], bool]] = {
    "always": _always,
    "static": _is_static,
    "memory": _binds_memory,
    "devices": _has_devices,
    "options": _has_options,
    "whole cores": _has_whole_cores,
    "topology options": _has_topology_options,
    "gates": _sets_gates,
    "sidecars": _has_sidecars,
    "pod level": _has_pod_level,
    "fields": _has_later_fields,
    "swap": _may_swap,
    "memory quality": _has_memory_quality,
    "period": _has_period,
}


def rows_between(older: int, newer: int, asked: Asked) -> Iterator[Row]:
    """Yield the rows of the releases after 1.`older` up to 1.`newer` that can concern a node."""
    for row in ROWS:
        if older < row.since <= newer and _CONCERNS[row.touches](asked):
            yield row


def row_of(older: int, newer: int, *, fact: str = "", gate: str = "", quirk: str = "") -> Row | None:
    """Return the last row between two releases that a fact, a gate or a defect brings about, if there is one."""
    named: Iterable[Row] = (row for row in reversed(ROWS) if older < row.since <= newer)
    return next((row for row in named if fact in row.facts or gate in row.gates or quirk in row.quirks), None)
