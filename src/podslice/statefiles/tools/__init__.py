"""Verify, convert and repair state files."""
