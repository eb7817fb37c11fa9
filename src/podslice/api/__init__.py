"""The Kubernetes API as far as it concerns resources."""
