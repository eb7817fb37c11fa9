"""What a node should keep for its system, by which provider's formula, on which CPUs and NUMA nodes."""
