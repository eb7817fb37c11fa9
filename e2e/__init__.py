"""End-to-end test: a real containerd and runc in a virtual machine with several NUMA nodes (docs/e2e.md)."""
