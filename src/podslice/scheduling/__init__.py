"""What the scheduler and its neighbours count of a pod: predicates, quota, scores, eviction."""
