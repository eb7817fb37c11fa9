"""What the kernel's files should say so that exclusive CPUs are left alone (docs/guards.md)."""
