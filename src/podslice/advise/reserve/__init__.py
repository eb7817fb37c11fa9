"""Advise on a node's reservation for its system: how much, on which CPUs and NUMA nodes (docs/reserve.md)."""
