"""Questions about a node beside its decisions: why, what would help, what is wrong, what if."""
