"""Verify, convert, repair and migrate the kubelet's state files (docs/state.md)."""
