"""Show what Kubernetes makes of a pod's resources, on one page (docs/inspect.md)."""
