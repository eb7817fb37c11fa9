"""Find the configurations of kubelets in a file, whatever carries them.

A file that holds one, with the parts that are merged with it, is read; where there are several, or none, the error says
what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from podslice.config.carriers.bottlerocket import is_bottlerocket, read_bottlerocket
from podslice.config.carriers.clouds import (
    is_user_data,
    layers_of_user_data,
    read_aks_and_gke,
    read_eksctl,
    read_karpenter,
    read_node_configs,
)
from podslice.config.carriers.command_line import is_command_text, read_command_text
from podslice.config.carriers.distributions import (
    read_gardener,
    read_k0s,
    read_kops,
    read_rancher,
    read_talos,
)
from podslice.config.carriers.kubeadm import read_cluster_api, read_kubeadm
from podslice.config.carriers.layer import KIND, ConfigDocument, Configuration, FieldPlace, Layer, merge_layers
from podslice.config.carriers.objects import Held, find_embedded, is_configuration, iter_held
from podslice.config.carriers.openshift import read_openshift
from podslice.config.carriers.plain import check_json, is_json, unwrap_configz
from podslice.config.carriers.strangers import describe_stranger
from podslice.config.kubelet import IgnoredField
from podslice.reading.yaml import DuplicateKey, load_documents
from podslice.values.decoding import abbreviate
from podslice.values.errors import InputError, did_you_mean

_Family = Callable[[list[Held]], Iterator[Configuration]]
_FAMILIES: tuple[_Family, ...] = (
    read_kubeadm, read_cluster_api, read_openshift, read_karpenter, read_node_configs, read_eksctl, read_aks_and_gke,
    read_kops, read_talos, read_rancher, read_gardener, read_k0s,
)  # fmt: skip


def read_document(text: str) -> ConfigDocument:
    """Return the configuration that a text holds. Of repeated keys the last one wins. Raises `InputError`."""
    return merge_layers(read_layers(text))


def read_layers(text: str, *, beside_file: bool = False, name: str = "") -> tuple[Layer, ...]:
    """Return the layers of the configuration that a text holds. `beside_file`: the file that a command line in it names
    is given as well. `name` chooses one of several. Raises `InputError`."""
    written = read_lines(text, beside_file=beside_file)
    if written is not None:
        return written.layers
    # YAML is a superset of JSON that would read more than a kubelet's JSON decoder accepts.
    check_json(text)
    duplicates: list[DuplicateKey] = []
    documents = load_documents(text, duplicates=duplicates)
    if not documents:
        raise InputError(f"holds nothing, not one {KIND}")
    twice = "is there more than once; the last one counts"
    ignored = [IgnoredField(one.key, problem=twice, remedy="write it once") for one in duplicates]
    plain = None if name else _read_plain(text, documents)
    first, *others = (plain,) if plain is not None else _choose(documents, name).layers
    return (first._replace(ignored=(*ignored, *first.ignored)), *others)


def read_lines(text: str, *, beside_file: bool = False) -> Configuration | None:
    """Return the configuration of a text that is neither YAML nor JSON; None for other texts. Raises `InputError`."""
    if is_user_data(text):
        layers = tuple(layer._replace(base=FieldPlace(line=1), places={}) for layer in layers_of_user_data(text))
        return Configuration("user data", layers) if layers else None
    if is_bottlerocket(text):
        return read_bottlerocket(text)
    return read_command_text(text, beside_file=beside_file) if is_command_text(text) else None


def is_lines(text: str) -> bool:
    """Whether `read_lines` reads a text, which is then neither YAML nor JSON."""
    return is_user_data(text) or is_bottlerocket(text) or is_command_text(text)


def find_configurations(text: str, documents: list[Any], *, lenient: bool = False) -> list[Configuration]:
    """Return all configurations of kubelets in a text whose `documents` were parsed already; for a command line there
    are none. `lenient` passes over texts inside objects that cannot be read. Raises `InputError`."""
    written = read_lines(text)
    if written is not None:
        return [written]
    objects = list(iter_held(documents))
    found = [one for family in _FAMILIES for one in family(objects)]
    merged = {layer.base for one in found for layer in one.layers}
    for held in objects:
        data = unwrap_configz(held.data)
        if is_plain(data) and held.place not in merged:
            found.append(Configuration("", (Layer(data, "", held.place, in_order=is_json(text)),)))
        elif not is_plain(data) and not _is_carried(held, found):
            found += find_embedded(held, lenient=lenient)
    return found


def is_plain(data: dict[str, Any]) -> bool:
    """Whether an object says that it is a KubeletConfiguration, of whatever version."""
    return (data.get("kind") == KIND and "metadata" not in data) or is_configuration(data)


def _is_carried(held: Held, found: list[Configuration]) -> bool:
    """Whether something was found in an object already."""
    return any(
        layer.base.document == held.place.document and layer.base.path.startswith(held.place.path)
        for one in found
        for layer in one.layers
        if layer.origin
    )


def _read_plain(text: str, documents: list[Any]) -> Layer | None:
    """Return the configuration of a file that a kubelet loads, or that it answers at `configz`; None for others."""
    first = documents[0]
    if not isinstance(first, dict):
        found = "a list" if isinstance(first, list) else f"only {abbreviate(first)}"
        raise InputError(f"holds {found}, not an object of kind {KIND}")
    data = unwrap_configz(first)
    if not is_plain(data) or any(read_kubeadm(list(iter_held(documents)))):
        return None
    # A kubelet reads the first document only; the others become a warning (memory-device 3.11).
    ignored = [IgnoredField("", problem=f"only the first of {len(documents)} documents is read")]
    return Layer(data, "", ignored=tuple(ignored[: len(documents) - 1]), in_order=is_json(text))


def _distinct(found: list[Configuration]) -> list[Configuration]:
    """Return configurations without those that say the same as an earlier one."""
    distinct: list[Configuration] = []
    seen: list[dict[str, Any]] = []
    for one in found:
        data = merge_layers(one.layers).data
        if data not in seen:
            seen.append(data)
            distinct.append(one)
    return distinct


def _of_workers(found: list[Configuration]) -> list[Configuration]:
    """Return the one configuration that is not of the control plane, if there are others; else all of them."""
    workers = [one for one in found if not one.of_control_plane]
    if len(workers) != 1 or len(found) == 1:
        return found
    first, *others = workers[0].layers
    left = next(one.name for one in found if one.of_control_plane)
    line = f"the node is a worker: {left}, for the control plane, does not count"
    return [workers[0]._replace(layers=(first._replace(assumed=(*first.assumed, line)), *others))]


def _is_named(one: Configuration, wanted: str) -> bool:
    """Whether a configuration is called so, in full or by the last word of its object."""
    return wanted in (one.name, _short(one.name), one.name.partition(",")[0])


def _short(name: str) -> str:
    """Return the last word of a name: that of the object, or of a group of workers in it."""
    return name.rpartition(" ")[2] or KIND


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:4])}{', …' if len(names) > 4 else ''}"


def _choose(documents: list[Any], wanted: str = "") -> Configuration:
    """Return the configuration of a file that is `wanted`, or the only one. Raises `InputError` where there is none, or
    more than one."""
    found = find_configurations("", documents)
    if not found:
        raise describe_stranger(list(iter_held(documents)), documents)
    found = [one for one in found if _is_named(one, wanted)] if wanted else _of_workers(_distinct(found))
    if not found:
        names = [one.name or KIND for one in find_configurations("", documents)]
        remedy = did_you_mean(wanted, [_short(name) for name in names], f"it holds {_listed(names)}")
        raise InputError(f"holds no configuration of a kubelet named {wanted!r}", remedy=remedy)
    if len(found) > 1:
        names = [one.name or KIND for one in found]
        raise InputError(
            f"holds {len(found)} configurations of kubelets: {_listed(names)}",
            remedy=f"name one of them behind the file, as in FILE#{_short(names[0])}, or give it in a file of its own",
        )
    (chosen,) = found
    if not chosen.layers[0].origin:
        layers = (
            chosen.layers[0]._replace(origin=f"document {chosen.layers[0].base.document + 1}"),
            *chosen.layers[1:],
        )
        return chosen._replace(layers=layers)
    return chosen
