"""Copies of a node on which pods are admitted, moved and removed without touching the node."""
