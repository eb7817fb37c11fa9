"""The simulated scheduler: queue, filters, scores, preemption."""
