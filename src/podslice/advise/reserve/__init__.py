"""Advise what a node keeps for its system, and on which CPUs and NUMA nodes (docs/reserve.md)."""
