"""Carry out in-place resizes of exclusive CPUs (docs/resize.md)."""
