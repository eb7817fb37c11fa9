"""The agents' journal streams: who may speak for a node, within which bounds."""
