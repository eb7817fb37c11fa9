"""The Memory Manager: policy, hints, ledger, state and checkpoint."""
