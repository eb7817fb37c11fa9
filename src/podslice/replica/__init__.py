"""A node as another process knows it: its journal, its state at rest, and the same rules."""
