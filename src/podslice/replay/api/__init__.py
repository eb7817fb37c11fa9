"""Replay API-level recordings."""
