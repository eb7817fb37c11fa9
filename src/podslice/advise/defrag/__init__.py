"""Find the fewest moves of running containers that make room for a pod (docs/defrag.md)."""
