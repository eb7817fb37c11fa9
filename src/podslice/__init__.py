"""podslice: the kubelet's resource managers as a library."""
