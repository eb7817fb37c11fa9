"""Plugins of the CPU Manager: your own code decides which CPUs a container gets (docs/plugins.md).

    from podslice.plugins import CPUAsk, CPUMachine, CPUNode, CPUPlugin

    class Quiet(CPUPlugin):
        def __init__(self, arguments, machine): ...
        def filter(self, ask, cpus, node): ...

A package offers its plugins as entry points `podslice.cpu_plugins`; a PodslicePolicy names those that a node uses.
"""

from podslice.node.plugins.api import (
    AskingPod,
    CPUAsk,
    CPUEffects,
    CPUMachine,
    CPUMove,
    CPUNode,
    CPUOwner,
    CPUPlugin,
    Layer,
    Moves,
    Relax,
    Remedy,
    Shortage,
    Wait,
)
from podslice.node.plugins.arguments import Arguments
from podslice.values.cpuset import Bits, format_bits, iter_bits

__all__ = [
    "Arguments",
    "AskingPod",
    "Bits",
    "CPUAsk",
    "CPUEffects",
    "CPUMachine",
    "CPUMove",
    "CPUNode",
    "CPUOwner",
    "CPUPlugin",
    "Layer",
    "Moves",
    "Relax",
    "Remedy",
    "Shortage",
    "Wait",
    "format_bits",
    "iter_bits",
]
