"""Plugins and CPU classes of the CPU Manager (docs/plugins.md, docs/policy.md)."""
