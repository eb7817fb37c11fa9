"""`podslice state`."""
