"""A machine as plain facts, and the CPU topology that a kubelet derives from it."""
