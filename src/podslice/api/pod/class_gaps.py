"""Fields that keep a pod from being Guaranteed, container by container (pod-level-resources 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from podslice.api.pod.demand import is_pod_level_resources_set, limits_of, requests_of
from podslice.api.pod.spec import Pod, ResourceRequirements
from podslice.values.quantity import ZERO, Quantity

CLASS_RESOURCES = ("cpu", "memory")
"""Resources that decide the QoS class."""


class ClassGap(NamedTuple):
    """An amount that keeps one set of resources from being Guaranteed.

    `place` is the path of the resources, `owner` the container, empty for the pod as a whole. `limit` is 0 where there
    is none, and then `request` may be 0 as well.
    """

    place: str
    owner: str
    resource: str
    request: Quantity
    limit: Quantity

    @property
    def missing(self) -> bool:
        """Whether there is no limit."""
        return self.limit.sign() <= 0

    @property
    def path(self) -> str:
        """The field to change: the limit that is missing, or the request that differs from it."""
        return f"{self.place}.{'limits' if self.missing else 'requests'}[{self.resource}]"

    @property
    def clause(self) -> str:
        """What the owner has, after `has`: `no cpu limit`, `cpu request 100m below its limit 2`."""
        if self.missing:
            return f"no {self.resource} limit"
        if self.request.is_zero():
            return f"no {self.resource} request beside its limit {self.limit}"
        side = "below" if self.request < self.limit else "above"
        return f"{self.resource} request {self.request} {side} its limit {self.limit}"


def gaps_of(place: str, owner: str, resources: ResourceRequirements) -> tuple[ClassGap, ...]:
    """Return what keeps one set of defaulted resources from being Guaranteed."""
    requests, limits = requests_of(resources), limits_of(resources)
    gaps = (ClassGap(place, owner, one, requests.get(one, ZERO), limits.get(one, ZERO)) for one in CLASS_RESOURCES)
    return tuple(gap for gap in gaps if gap.missing or gap.request != gap.limit)


def class_gaps(pod: Pod, gates: Mapping[str, bool]) -> tuple[ClassGap, ...]:
    """Return what keeps a defaulted pod from being Guaranteed, empty for one that is: gaps of `spec.resources` where
    those decide, else of every init and app container. Ephemeral containers do not count."""
    resources = pod.spec.resources
    if resources is not None and gates["PodLevelResources"] and is_pod_level_resources_set(pod):
        return gaps_of("spec.resources", "", resources)
    groups = (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers))
    return tuple(
        gap
        for group, containers in groups
        for index, container in enumerate(containers)
        for gap in gaps_of(f"spec.{group}[{index}].resources", container.name, container.resources)
    )


def close_gaps(resources: ResourceRequirements, amounts: Mapping[str, Quantity]) -> ResourceRequirements:
    """Return resources whose requests and limits of `amounts` are these amounts."""
    return msgspec.structs.replace(
        resources, requests={**requests_of(resources), **amounts}, limits={**limits_of(resources), **amounts}
    )
