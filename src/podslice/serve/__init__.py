"""`podslice serve`: a local page with the node live."""
