"""Find the configurations of kubelets in a file, whatever carries them.

A file that holds one, with the parts that are merged with it, is read; where there are several, or none, the error says
what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from podslice.config.carriers.command_line import is_command_text, read_command_text
from podslice.config.carriers.kubeadm import read_cluster_api, read_kubeadm
from podslice.config.carriers.layer import KIND, ConfigDocument, Configuration, Layer, merge_layers
from podslice.config.carriers.objects import Held, find_embedded, is_configuration, iter_held
from podslice.config.carriers.plain import check_json, is_json, unwrap_configz
from podslice.config.carriers.strangers import describe_stranger
from podslice.config.kubelet import IgnoredField
from podslice.reading.yaml import load_documents
from podslice.values.decoding import abbreviate
from podslice.values.errors import InputError

_Family = Callable[[list[Held]], Iterator[Configuration]]
_FAMILIES: tuple[_Family, ...] = (read_kubeadm, read_cluster_api)


def read_document(text: str) -> ConfigDocument:
    """Return the configuration that a text holds. Of repeated keys the last one wins. Raises `InputError`."""
    return merge_layers(read_layers(text))


def read_layers(text: str, *, beside_file: bool = False) -> tuple[Layer, ...]:
    """Return the layers of the configuration that a text holds. `beside_file`: the file that a command line in it names
    is given as well. Raises `InputError`."""
    if is_command_text(text):
        return read_command_text(text, beside_file=beside_file).layers
    # YAML is a superset of JSON that would read more than a kubelet's JSON decoder accepts.
    check_json(text)
    duplicates: list[str] = []
    documents = load_documents(text, duplicates=duplicates)
    if not documents:
        raise InputError(f"holds nothing, not one {KIND}")
    ignored = [IgnoredField(name, problem="is there more than once; the last one counts") for name in duplicates]
    plain = _read_plain(text, documents)
    first, *others = (plain,) if plain is not None else _choose(documents).layers
    return (first._replace(ignored=(*ignored, *first.ignored)), *others)


def find_configurations(text: str, documents: list[Any]) -> list[Configuration]:
    """Return all configurations of kubelets in a text whose `documents` were parsed already; for a command line there
    are none. Raises `InputError`."""
    if is_command_text(text):
        return [read_command_text(text)]
    objects = list(iter_held(documents))
    found = [one for family in _FAMILIES for one in family(objects)]
    merged = {layer.base for one in found for layer in one.layers}
    for held in objects:
        data = unwrap_configz(held.data)
        if is_plain(data) and held.place not in merged:
            found.append(Configuration("", (Layer(data, "", held.place, in_order=is_json(text)),)))
        elif not is_plain(data) and not _is_carried(held, found):
            found += find_embedded(held)
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


def _choose(documents: list[Any]) -> Configuration:
    """Return the one configuration of a file. Raises `InputError` where there is none, or more than one."""
    found = find_configurations("", documents)
    if not found:
        raise describe_stranger(list(iter_held(documents)), documents)
    if len(found) > 1:
        names = [one.name or KIND for one in found]
        raise InputError(
            f"holds {len(found)} configurations of kubelets: {', '.join(names[:4])}{', …' if len(names) > 4 else ''}",
            remedy="give one of them in a file of its own",
        )
    (chosen,) = found
    if not chosen.layers[0].origin:
        layers = (
            chosen.layers[0]._replace(origin=f"document {chosen.layers[0].base.document + 1}"),
            *chosen.layers[1:],
        )
        return chosen._replace(layers=layers)
    return chosen
