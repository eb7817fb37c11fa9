"""Warnings of the API server when it accepts a pod, as far as they concern resources."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.api.pod.names import label_problems
from podslice.api.pod.spec import Pod, ResourceList

_HOST_NAME = (
    "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is "
    "recommended"
)
_BYTES = ("memory", "ephemeral-storage")


def create_warnings(pod: Pod) -> list[str]:
    """Return the warnings of a create request, sorted: bytes that are not whole, in containers and overhead, and a name
    that makes no good host name.

    Upstream does not look at `spec.resources`, and takes amounts whose thousandths exceed 64 bits for fractions.
    """
    spec = pod.spec
    warnings: list[str] = []
    unfit = label_problems(pod.metadata.name) if pod.metadata.name else []
    if unfit:
        warnings.append(f"{_HOST_NAME}: [{' '.join(unfit)}]")
    for field, containers in (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    ):
        for index, container in enumerate(containers):
            for side, amounts in (("limits", container.resources.limits), ("requests", container.resources.requests)):
                if amounts:
                    warnings += _fractions(amounts, f"spec.{field}[{index}].resources.{side}")
    warnings += _fractions(spec.overhead or {}, "spec.overhead")
    return sorted(warnings)


def _fractions(amounts: ResourceList, path: str) -> Iterator[str]:
    for name in _BYTES:
        amount = amounts.get(name)
        if amount is not None and amount.milli_value() % 1000:
            yield f'{path}[{name}]: fractional byte value "{amount}" is invalid, must be an integer'
