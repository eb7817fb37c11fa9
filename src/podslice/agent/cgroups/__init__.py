"""Compare the cgroups of containers with the node's state, and repair them."""
