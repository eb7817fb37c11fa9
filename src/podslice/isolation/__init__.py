"""Measure whether exclusive CPUs are really alone (docs/isolation.md)."""
