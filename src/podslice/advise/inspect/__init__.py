"""Show what Kubernetes derives from a pod's resources, on one page (docs/inspect.md)."""
