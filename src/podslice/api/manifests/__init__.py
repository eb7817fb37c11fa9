"""Read pods from manifests of every workload kind."""
