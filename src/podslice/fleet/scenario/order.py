"""In which order cells are made: those that take longest first, so that workers end at about the same time."""

from __future__ import annotations

from collections.abc import Sequence

from podslice.config.kubelet import KubeletConfig
from podslice.fleet.scenario.cells import FleetCell, Study

_ASKS = {"kube": 1.0, "kube-nrt": 1.5, "exact": 1.5}
_ALIGNS = {"none": 0, "best-effort": 2, "restricted": 2, "single-numa-node": 3}


def longest_first(study: Study, cells: Sequence[FleetCell]) -> tuple[FleetCell, ...]:
    """The cells by about how long they take, which only says who comes first: nothing else depends on it. Equal ones
    stay as they were."""
    known: dict[tuple[str, str], float] = {}
    for cell in cells:
        place = cell.alternative, cell.configuration
        if place not in known:
            known[place] = max(map(_work, study.configs(cell).values()), default=0.0)

    def work(cell: FleetCell) -> float:
        asks = _ASKS[study.scenario.schedulers[cell.scheduler].filter]
        return -asks * known[cell.alternative, cell.configuration]

    return tuple(sorted(cells, key=work))


def _work(config: KubeletConfig) -> float:
    """How much a kubelet has to decide for a pod, in what one without managers has."""
    managed = (config.cpu_manager_policy != "none") + 2 * (config.memory_manager_policy != "None")
    return 1.0 + managed + _ALIGNS.get(config.topology_manager_policy, 0)
