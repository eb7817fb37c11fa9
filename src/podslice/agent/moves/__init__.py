"""Move running containers to other CPUs and NUMA nodes (docs/defrag.md)."""
