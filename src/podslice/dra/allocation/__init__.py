"""The structured allocator of kube-scheduler: which devices the claims of a pod get."""
