"""Evaluation of the selectors of classes and requests; every expression runs once for each kind of device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from podslice.dra.allocation.pools import OfferedDevice
from podslice.dra.objects import DeviceClass, DeviceSubRequest
from podslice.values.errors import PodsliceError

Matches = Callable[[str, OfferedDevice], bool]
"""Whether a CEL expression holds for a device. Raises `SelectorError`."""


class SelectorError(PodsliceError):
    """Raised for an expression without a result for a device: the scheduler gives up the whole pod."""

    def __init__(self, expression: str, device: str, problem: str) -> None:
        super().__init__(f"selector {expression!r} on device {device}: {problem}")
        self.expression, self.device, self.problem = expression, device, problem


class UnknownClassError(PodsliceError):
    """Raised for a request for a class that does not exist, in the scheduler's words."""

    def __init__(self, request: str, name: str) -> None:
        super().__init__(f"request {request}: device class {name} does not exist")


class Unmet(NamedTuple):
    """The first selector that a device does not meet, and whether it is the class's."""

    expression: str
    of_class: bool


class SelectorCache:
    """Results of selectors for the devices of a cluster. `classes` by name."""

    def __init__(self, classes: Mapping[str, DeviceClass], matches: Matches) -> None:
        self._classes = classes
        self._matches = matches
        self._known: dict[tuple[str, tuple[object, ...]], bool | SelectorError] = {}

    def expressions(self, form: DeviceSubRequest, request: str) -> list[Unmet]:
        """Return all selectors that a device must meet, the class's first. Raises `UnknownClassError`."""
        known = self._classes.get(form.device_class_name)
        if known is None:
            raise UnknownClassError(request, form.device_class_name)
        return [
            *(Unmet(one.cel.expression, of_class=True) for one in known.spec.selectors),
            *(Unmet(one.cel.expression, of_class=False) for one in form.selectors),
        ]

    def first_unmet(self, expressions: list[Unmet], offered: OfferedDevice) -> Unmet | None:
        """Return the first selector that the device does not meet. Raises `SelectorError`."""
        return next((one for one in expressions if not self._holds(one.expression, offered)), None)

    def _holds(self, expression: str, offered: OfferedDevice) -> bool:
        key = (expression, offered.look)
        known = self._known.get(key)
        if known is None:
            try:
                known = self._matches(expression, offered)
            except SelectorError as error:
                known = error
            self._known[key] = known
        if isinstance(known, SelectorError):
            raise known
        return known
