"""Devices of a node from a file or a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from podslice.machine.devices import DeviceInventory, inventory_from_data
from podslice.machine.listings.nvidia_topo import from_nvidia_topo, is_nvidia_topo
from podslice.reading.files import PathOrText, is_text, read_text
from podslice.reading.yaml import load_documents
from podslice.values.errors import InputError


def load_devices(source: PathOrText | Mapping[str, Any] | Sequence[Any]) -> DeviceInventory:
    """Return the devices that a file, a text or plain data describes (docs/machines.md). Raises `InputError`."""
    if not isinstance(source, PathOrText):
        return inventory_from_data(source)
    name = "" if is_text(source) else str(source)
    text = read_text(name) if name else str(source)
    if is_nvidia_topo(text):
        return from_nvidia_topo(text, name)
    documents = load_documents(text, name)
    if not documents:
        raise InputError("holds no devices", source=name, remedy="docs/machines.md shows the form")
    return inventory_from_data(documents[0], source=name)
