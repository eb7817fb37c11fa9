"""The CPU Manager: policy, hints, allocation, state and checkpoint."""
