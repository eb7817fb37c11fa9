"""`podslice admit`: decide which pods land on a node, and where."""
