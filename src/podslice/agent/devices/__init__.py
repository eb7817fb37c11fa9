"""Device plugins that register at the agent or at the kubelet beside it."""
