"""What people see of a cluster: where pods could go and why not elsewhere, who waits, and what is scattered."""
