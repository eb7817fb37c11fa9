"""`podslice status`: what the agent on this node does."""
