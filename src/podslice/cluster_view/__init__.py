"""Ask a running `podslice cluster`, and show its answers."""
