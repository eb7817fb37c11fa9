"""Cutting a release: reproducible archives, tried with every Python at hand (`make dist`)."""
