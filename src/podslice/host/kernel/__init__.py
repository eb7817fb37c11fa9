"""Files of the kernel that the agent reads and writes: cgroup v2, interrupts, power, resctrl."""
