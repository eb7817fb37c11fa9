"""A pod and what its fields mean: names, requests, limits, eligibility."""
