"""Why a pod is refused: constraints found and tried on a copy of the node."""
