"""Why a pod of a cluster does not run, or runs where it does: what was reported, and what the node decides."""
