"""Check whether a node does what its state files say, without a kubelet or an agent."""
