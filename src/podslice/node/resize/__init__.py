"""In-place resizes: what a kubelet grants, defers and refuses."""
