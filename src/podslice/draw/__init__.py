"""`podslice draw`: the node as a picture."""
