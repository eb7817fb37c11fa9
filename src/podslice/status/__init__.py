"""`podslice status`: the state of the agent on this node."""
