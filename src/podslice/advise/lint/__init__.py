"""Check pods and kubelet configurations against rules (docs/lint.md)."""
