"""Which devices the selectors of classes and requests mean; every expression is asked once for each kind of device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from podslice.dra.allocation.pools import OfferedDevice
from podslice.dra.objects import DeviceClass, DeviceSubRequest
from podslice.values.errors import PodsliceError

Matches = Callable[[str, OfferedDevice], bool]
"""Whether a CEL expression holds for a device. Raises `SelectorError`."""


class SelectorError(PodsliceError):
    """An expression that has no answer for a device: the scheduler gives the whole pod up."""

    def __init__(self, expression: str, device: str, problem: str) -> None:
        super().__init__(f"selector {expression!r} on device {device}: {problem}")
        self.expression, self.device, self.problem = expression, device, problem


class UnknownClassError(PodsliceError):
    """A request for a class that does not exist, in the scheduler's words."""

    def __init__(self, request: str, name: str) -> None:
        super().__init__(f"request {request}: device class {name} does not exist")


class Unmet(NamedTuple):
    """The first selector that a device does not meet, and whose it is."""

    expression: str
    of_class: bool


class Selecting:
    """Answers for the devices of a cluster. `classes` by name."""

    def __init__(self, classes: Mapping[str, DeviceClass], matches: Matches) -> None:
        self._classes = classes
        self._matches = matches
        self._known: dict[tuple[str, tuple[object, ...]], bool | SelectorError] = {}

    def expressions(self, form: DeviceSubRequest, request: str) -> list[Unmet]:
        """All that a device must meet, the class first. Raises `UnknownClassError`."""
        known = self._classes.get(form.device_class_name)
        if known is None:
            raise UnknownClassError(request, form.device_class_name)
        return [
            *(Unmet(one.cel.expression, of_class=True) for one in known.spec.selectors),
            *(Unmet(one.cel.expression, of_class=False) for one in form.selectors),
        ]

    def unmet(self, expressions: list[Unmet], offered: OfferedDevice) -> Unmet | None:
        """Raises `SelectorError`."""
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
