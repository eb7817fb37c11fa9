"""The parts of a pod that the scheduler and its neighbours count: predicates, quota, scores, eviction."""
