"""The register of scenarios: an id of the checklist, the kubelet configuration it needs, and what is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from e2e.vm import NEW_KERNEL, SHAPES, Shape

Json = dict[str, Any]
Config = Json | Callable[[Shape], Json]
FINE_L3 = "1x4-8l3"
"""Only here has a NUMA node several L3 groups; a kubelet does not distinguish a group from the node it fills."""
STATIC: Json = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}


class Scenario(NamedTuple):
    """One row of the checklist. `config` may depend on the machine; `shapes` are the machines the row makes sense on;
    `agent` are settings of the agent, `arguments` go to `run`."""

    ident: str
    config: Config
    run: Callable[..., None]
    shapes: tuple[str, ...]
    agent: Json
    arguments: Json


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    ident: str,
    config: Config,
    *,
    smt: bool = False,
    l3: bool = False,
    where: Callable[[Shape], bool] | None = None,
    new_kernel: bool = False,
    agent: Json | None = None,
    **arguments: Any,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function. `smt`, `l3`, `where` limit it to machines with threads, to the one with L3 groups below NUMA
    nodes, or others, `new_kernel` to the one with a newer kernel; `agent` changes settings of the agent."""

    def fits(shape: Shape) -> bool:
        if smt and "threads=1" in shape.smp:
            return False
        if new_kernel or shape.name == NEW_KERNEL:
            return new_kernel and shape.name == NEW_KERNEL
        if l3 or shape.name == FINE_L3:
            return l3 and shape.name == FINE_L3
        return where is None or where(shape)

    def register(function: Callable[..., None]) -> Callable[..., None]:
        assert ident not in SCENARIOS, ident
        shapes = tuple(name for name, shape in SHAPES.items() if fits(shape))
        SCENARIOS[ident] = Scenario(ident, config, function, shapes, agent or {}, arguments)
        return function

    return register


def with_options(*names: str) -> Json:
    """The static policy with options on; the alpha ones with their gate."""
    gates = {"CPUManagerPolicyAlphaOptions": True, "CPUManagerPolicyBetaOptions": True}
    reserved = "0-1" if "full-pcpus-only" in names else "0"
    return {
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": reserved,
        "cpuManagerPolicyOptions": dict.fromkeys(names, "true"),
        "featureGates": gates,
    }


def configured(make: Callable[..., Json], **fields: Any) -> Callable[[Shape], Json]:
    """A configuration that depends on the machine."""
    return lambda shape: make(shape, **fields)
