"""The Device Manager: hints, allocation, plugins, state and checkpoint."""
