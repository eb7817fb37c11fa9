"""The Kubernetes releases whose kubelets podslice knows: one module per minor version, and their table."""
