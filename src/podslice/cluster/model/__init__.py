"""The cluster as its nodes will answer: filter, choice and holds, without I/O."""
