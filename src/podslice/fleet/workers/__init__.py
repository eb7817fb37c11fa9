"""Processes and Dask workers that simulate cells."""
