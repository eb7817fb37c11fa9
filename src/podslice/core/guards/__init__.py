"""What the kernel's files should say so that exclusive CPUs are left alone: facts in, wished writes out."""
