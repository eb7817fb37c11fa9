"""Keep the kernel's own work away from exclusive CPUs (docs/isolation.md)."""
