"""The agent at the container runtime: NRI over ttrpc."""
