"""Compare what two releases of the kubelet do with one node and its pods (docs/upgrade.md)."""
