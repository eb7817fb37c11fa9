"""The Topology Manager: hints, merging them, and the verdict."""
