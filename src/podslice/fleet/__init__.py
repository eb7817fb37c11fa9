"""Simulations of clusters: traces, scenarios and tables around `core.fleet`."""
