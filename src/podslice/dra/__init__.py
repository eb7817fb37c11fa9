"""Dynamic Resource Allocation: slices, claims and their devices (KEP-4381, 5075, 4815, 4816)."""
