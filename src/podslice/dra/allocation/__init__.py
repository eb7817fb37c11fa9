"""The structured allocator of kube-scheduler: it chooses the devices that the claims of a pod get."""
