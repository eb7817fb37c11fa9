"""Questions about a node beside its decisions: explanations, fixes, checks, comparisons and plans."""
