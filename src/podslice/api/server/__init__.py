"""What the API server does with a pod: defaults, validation, limit ranges, updates, resizes."""
