"""What the agent reports: status, metrics, logs and its local socket."""
