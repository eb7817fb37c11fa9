"""Compare a node with its state files, without a kubelet or an agent."""
