"""`podslice cluster pending|fit|fragmentation`, and the same under `kubectl podslice`."""
