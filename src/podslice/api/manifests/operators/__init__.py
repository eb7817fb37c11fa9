"""Pods that operators make of objects without a pod template; one module for each operator."""
