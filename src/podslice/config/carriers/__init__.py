"""Places where the configuration of a kubelet is kept, apart from the file that the kubelet loads (docs/config.md)."""
