"""Compare kubelet configurations and machines for the same pods (docs/whatif.md)."""
