"""Effects of decisions on the kernel: cgroups, OOM scores, sandboxes."""
