"""CPUs, memory and NUMA nodes that come and go while a node runs (docs/hotplug.md)."""
