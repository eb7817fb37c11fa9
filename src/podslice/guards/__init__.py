"""Wanted contents of the kernel's files, so that exclusive CPUs are left alone (docs/isolation.md)."""
