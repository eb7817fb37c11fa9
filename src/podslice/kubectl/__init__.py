"""`kubectl podslice`: a cluster's nodes from afar, through its API server and the agents."""
