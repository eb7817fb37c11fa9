"""A real containerd and runc in a virtual machine with several NUMA nodes (docs/development/e2e.md)."""
