"""Read a machine from sysfs and procfs, of this host or of a snapshot."""
