"""The API server's treatment of a pod: defaults, validation, limit ranges, updates, resizes."""
