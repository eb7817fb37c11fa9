"""A copy of a running kubelet to try things on: same decisions from then on, nothing shared that changes.

In this project values are frozen structs, tuples and numbers; they are shared. Everything else is copied: containers,
mutable structs and the managers themselves. This is several times faster than `copy.deepcopy`, which copies values
too; trying a hundred changes on a node with a hundred pods depends on it.
"""

from __future__ import annotations

import copy
from functools import cache
from types import FunctionType, MethodType
from typing import Any, TypeVar

import msgspec

from podslice.core.allocate.picker import Picker
from podslice.core.hints.devices import Coverage
from podslice.core.kubelet import Kubelet
from podslice.core.machine.topology import CPUTopology
from podslice.core.merge.merge import Merger
from podslice.core.values.gates import FeatureGates
from podslice.core.values.quantity import Quantity

T = TypeVar("T")
_VALUES = frozenset(
    {
        *(int, str, bytes, bool, float, type(None), type, FunctionType, frozenset),
        *(CPUTopology, Merger, Picker, FeatureGates, Coverage, Quantity),
    }
)


def fork(kubelet: Kubelet) -> Kubelet:
    """An independent copy of a kubelet."""
    return _copied(kubelet, {})


def _copied(value: T, known: dict[int, Any]) -> T:
    kind = type(value)
    if kind in _VALUES or isinstance(value, tuple) or _is_frozen(kind):  # type: ignore[arg-type]
        return value
    if id(value) in known:
        found: T = known[id(value)]
        return found
    made: Any
    if kind is dict:
        made = known[id(value)] = {}
        for key, item in value.items():  # type: ignore[attr-defined]
            made[key] = item if type(item) in _VALUES else _copied(item, known)
    elif kind is list:
        made = known[id(value)] = []
        made += [_copied(item, known) for item in value]  # type: ignore[attr-defined]
    elif isinstance(value, msgspec.Struct):
        made = known[id(value)] = copy.copy(value)
        for name in value.__struct_fields__:
            setattr(made, name, _copied(getattr(value, name), known))
    elif isinstance(value, MethodType):
        return value.__func__.__get__(_copied(value.__self__, known))  # type: ignore[no-any-return]
    elif kind.__module__.startswith("podslice."):
        made = known[id(value)] = kind.__new__(kind)
        for name in _attributes(kind, value):
            if hasattr(value, name):
                setattr(made, name, _copied(getattr(value, name), known))
    else:
        return copy.deepcopy(value, known)
    copied: T = made
    return copied


@cache
def _is_frozen(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__struct_config__.frozen


@cache
def _slots(kind: type) -> tuple[str, ...]:
    return tuple(name for base in kind.__mro__ for name in getattr(base, "__slots__", ()))


def _attributes(kind: type, value: object) -> list[str]:
    """Names of an object's own attributes, in slots or not."""
    return [*_slots(kind), *getattr(value, "__dict__", ())]
