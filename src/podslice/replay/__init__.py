"""Recorded decisions of Kubernetes v1.36.2: run them, compare them."""
