"""Objects of a cluster that describe a node, by their kind."""

from __future__ import annotations

from typing import Any

from podslice.node_objects.described import DescribedNode
from podslice.node_objects.read_node import from_node
from podslice.node_objects.read_nrt import from_node_resource_topology
from podslice.reading.lists import fill_items, flatten_lists, is_list
from podslice.values.decoding import abbreviate
from podslice.values.errors import InputError

_READERS = {"Node": from_node, "NodeResourceTopology": from_node_resource_topology}
KINDS = tuple(_READERS)


def describes_node(data: Any) -> bool:
    """Whether it is such an object, or a list of them."""
    if not isinstance(data, dict):
        return False
    if is_list(data):
        return any(map(describes_node, fill_items(data))) or str(data["kind"]).removesuffix("List") in KINDS
    return data.get("kind") in KINDS


def read_described_node(documents: list[Any], source: str) -> DescribedNode:
    """Return the node that the only such object describes. Raises `InputError`, also for several."""
    objects = [item for data in documents for item in flatten_lists(data) if describes_node(item)]
    if len(objects) != 1:
        names = ", ".join(str((one.get("metadata") or {}).get("name")) for one in objects[:4])
        problem = f"holds {len(objects)} objects{f' ({names})' if names else ''}, not one node"
        raise InputError(problem, source=source, remedy="give one of them, as of kubectl get node NAME -o yaml")
    try:
        _check_name(objects[0])
        return _READERS[objects[0]["kind"]](objects[0])
    except InputError as error:
        raise error.at(source=source) from None


def _check_name(data: dict[str, Any]) -> None:
    """Raise `InputError` for a name that is not a string, as of `name: n`: YAML makes it false."""
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if name is not None and not isinstance(name, str):
        found = "true or false" if isinstance(name, bool) else abbreviate(name)
        raise InputError(f"expected text, got {found}", path="metadata.name", remedy="put it in quotes")
