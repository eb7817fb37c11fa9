"""Dynamic Resource Allocation: what kube-scheduler's structured allocator answers (KEP-4381, 5075, 4815, 4816)."""
