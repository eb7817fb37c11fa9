"""The agent beside a kubelet: sources of pods, PodResources, the Pods API."""
