"""A bundle: what is known of one node, in one folder or archive (docs/why.md)."""
