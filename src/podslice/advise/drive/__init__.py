"""Copies of nodes that are driven. All other advice reads views and asks trials."""
