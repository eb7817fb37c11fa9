"""The driver for claims of CPUs and memory (docs/dra.md)."""
