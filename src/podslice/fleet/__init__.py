"""Simulate whole clusters: traces, scenarios, a scheduler, and nodes that refuse pods as kubelets do."""
