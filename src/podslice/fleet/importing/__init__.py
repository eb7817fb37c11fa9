"""Make a scenario of a live cluster, from dumps and exported metrics."""
