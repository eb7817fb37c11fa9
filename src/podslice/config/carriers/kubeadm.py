"""Files of kubeadm, and of what builds on it: Cluster API, and kind with its patches.

The KubeletConfiguration in them is uploaded as ConfigMap kubelet-config; `kubeletExtraArgs` become flags, which
override it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from podslice.config.carriers.flags import Flag, read_flags
from podslice.config.carriers.layer import Configuration, FieldPlace, Layer
from podslice.config.carriers.objects import Held, is_configuration
from podslice.config.kubelet import IgnoredField
from podslice.values.errors import InputError

KUBEADM = "kubeadm.k8s.io"
_CLUSTER_API = ("bootstrap.cluster.x-k8s.io", "controlplane.cluster.x-k8s.io")
_ARGUMENTS = "nodeRegistration.kubeletExtraArgs"
_IN_CLUSTER_API = ("spec", "spec.template.spec", "spec.kubeadmConfigSpec", "spec.template.spec.kubeadmConfigSpec")


def read_kubeadm(objects: list[Held]) -> Iterator[Configuration]:
    """Yield the configuration of a file of kubeadm: its KubeletConfiguration, with the flags of the node."""
    own = [held for held in objects if held.group == KUBEADM]
    if not own:
        return
    layers = [Layer(held.data, held.kind, held.place) for held in objects if is_configuration(held.data)]
    if len(layers) > 1:
        layers[0] = layers[0]._replace(
            ignored=(IgnoredField("", problem=f"only the first of {len(layers)} KubeletConfigurations is read"),)
        )
    flags = [layer for held in own if (layer := _flags_layer(held, _ARGUMENTS)) is not None]
    # A joining node runs with the flags of JoinConfiguration; those of InitConfiguration are the first node's.
    if len(flags) > 1 and flags[0].fields != flags[-1].fields:
        line = "the node joins: kubeletExtraArgs of InitConfiguration, for the first node, do not count"
        flags = [flags[-1]._replace(assumed=(*flags[-1].assumed, line))]
    chosen = (*layers[:1], *flags[-1:])
    if chosen:
        name = "a file of kubeadm"
        first = chosen[0]
        yield Configuration(name, (first._replace(origin=f"{name}, {first.origin}"), *chosen[1:]))


def read_cluster_api(objects: list[Held]) -> Iterator[Configuration]:
    """Yield the flags that Cluster API passes to kubelets through kubeadm."""
    for held in objects:
        if held.group not in _CLUSTER_API:
            continue
        for above in _IN_CLUSTER_API:
            # initConfiguration is for the first node of a control plane alone.
            for phase in ("joinConfiguration", "initConfiguration"):
                layer = _flags_layer(held, f"{above}.{phase}.{_ARGUMENTS}")
                if layer is not None:
                    yield Configuration(layer.origin, (layer,), "ControlPlane" in held.kind)
                    break


def _flags_layer(held: Held, path: str) -> Layer | None:
    given = held.value(path)
    if not given:
        return None
    flags = list(iter_given_flags(given, held.at(path)))
    return read_flags(flags, f"{held.name}, {path}").layer


def iter_given_flags(given: Any, place: FieldPlace) -> Iterator[Flag]:
    """Yield flags given as a map, as a list of name and value, or as a list of NAME=VALUE. Raises `InputError`."""
    if isinstance(given, dict):
        for name, value in given.items():
            for one in value if isinstance(value, list) else [value]:
                yield Flag(_flag_name(name), _flag_value(one, place.below(f"[{name}]")), place.below(f"[{name}]"))
        return
    for at, item in enumerate(_listed(given, place)):
        where = place._replace(path=f"{place.path}[{at}]")
        if isinstance(item, dict) and isinstance(item.get("name"), str):
            yield Flag(_flag_name(item["name"]), _flag_value(item.get("value"), where), where)
        elif isinstance(item, str):
            name, equals, value = item.strip().lstrip("-").partition("=")
            yield Flag(_flag_name(name), value if equals else None, where)
        else:
            raise InputError("is not a flag of a kubelet", path=where.path, remedy="max-pods=200")


def _listed(given: Any, place: FieldPlace) -> Iterable[Any]:
    if isinstance(given, list):
        return given
    if isinstance(given, str):
        return [given]
    raise InputError("is neither a list nor an object with flags", path=place.path, remedy="[max-pods=200]")


def _flag_name(name: object) -> str:
    return str(name).strip().lstrip("-").replace("_", "-")


def _flag_value(value: Any, place: FieldPlace) -> str | None:
    if isinstance(value, dict | list):
        raise InputError("is an object or a list, not the value of a flag", path=place.path, remedy="max-pods: 200")
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
