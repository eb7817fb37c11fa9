"""Quantities, CPU sets, durations, feature gates, errors."""
