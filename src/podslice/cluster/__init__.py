"""`podslice cluster`: the service beside a kube-scheduler that knows what every node answers."""
