"""Whether exclusive CPUs are really alone: what was seen of them twice, and what follows (docs/isolation.md)."""
