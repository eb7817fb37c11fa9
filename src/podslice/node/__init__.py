"""A node that decides: the resource managers of a kubelet, one folder each."""
