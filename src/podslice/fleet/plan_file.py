"""What `fleet plan` found, as it is kept beside a scenario."""

from __future__ import annotations

import msgspec


class PlannedConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """Nodes that a configuration needs, over seeds; `by_seed` in the order of the scenario's seeds. Where all nodes of
    the scenario are not `enough`, `never` are shapes of pods that did not run on them."""

    name: str
    median: int
    least: int
    most: int
    p90: int
    by_seed: tuple[int, ...]
    enough: bool
    never: tuple[str, ...]


class PlannedNodes(msgspec.Struct, frozen=True, rename="camel"):
    """The least nodes for each configuration, and what was allowed to stay unmet, in percent."""

    name: str
    nodes: int
    tolerance: float
    configurations: tuple[PlannedConfiguration, ...]
    anomalies: tuple[str, ...]
