"""What people ask about a node beside its decisions: why, what would make a pod fit, what is wrong, what if."""
