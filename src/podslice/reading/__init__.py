"""Read files, compressed bytes and YAML within bounds."""
