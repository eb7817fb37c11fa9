"""What decisions mean for the kernel: cgroups, OOM scores, sandboxes."""
