"""Device plugins that register with the agent or with the kubelet beside it."""
