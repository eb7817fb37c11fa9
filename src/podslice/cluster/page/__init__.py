"""The cluster's page: where pods could go, who waits, and how scattered free CPUs are."""
