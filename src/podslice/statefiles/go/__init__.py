"""Go's ways with JSON, checksums and dumps, as far as state files show them."""
