"""Scenario files, their cells, and runs on disk."""
