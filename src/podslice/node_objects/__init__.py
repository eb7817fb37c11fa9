"""Node and NodeResourceTopology objects: nodes read from them, and the objects that podslice writes."""
