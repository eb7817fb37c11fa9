"""Reports of the agent: status, metrics, logs and its local socket."""
