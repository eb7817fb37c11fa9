"""What Node and NodeResourceTopology objects tell of a node, and what podslice writes of it."""
