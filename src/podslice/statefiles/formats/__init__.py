"""The formats of the state files: reading, writing, and what a starting kubelet makes of them."""
