"""Traces of clusters: read, convert, cut, check."""
