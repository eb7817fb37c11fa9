"""Say what becomes of running pods when the kubelet starts again (docs/whatif.md)."""
