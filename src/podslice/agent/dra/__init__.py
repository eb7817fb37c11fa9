"""The driver for claims of CPUs and memory, in the agent (docs/dra.md)."""
