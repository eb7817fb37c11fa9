"""Pick CPUs on a machine: packed, spread, distributed over NUMA nodes, by uncore cache."""
