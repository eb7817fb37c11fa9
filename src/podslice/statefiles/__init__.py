"""The state files of the kubelet's resource managers: every format of every release, byte for byte."""
