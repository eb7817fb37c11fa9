"""Search for the smallest change after which a refused pod is admitted, and price it."""
