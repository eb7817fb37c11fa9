"""The agent at the API server: its pods, events, refused pods, leases and objects."""
