"""`kubectl podslice why` and `capture`: what the cluster knows of a node, and a pod that looks on the node."""
