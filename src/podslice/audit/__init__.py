"""Whether a node does what its state files say, without talking to a kubelet or an agent."""
