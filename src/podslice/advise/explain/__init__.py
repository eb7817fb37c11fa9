"""Explain a decision and what would change it (docs/explain.md). Nothing here decides."""
